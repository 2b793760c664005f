"""The inputs that training gives a model of transformers: its arguments, in its config's sizes."""

import inspect
from collections.abc import Callable, Collection
from typing import Any

import torch

from dpdemo.errors import UsageError
from dpdemo.models.libraries import Inputs, InputSizes, Named
from dpdemo.models.libraries.imagetexts import reads_images_in_texts, texts_with_images, unequal_images
from dpdemo.models.libraries.texts import WORD, Spec, fill, first, of_texts

_SECONDS_OF_SOUND, _RATE = 1, 16000
_LABELS, _REGIONS, _COORDINATES = 10, 36, 4
_STEPS = 20  # of a Decision Transformer, as its training on Gym has it
_FRAMES_OF_TEN_SECONDS = 1001  # what ClapFeatureExtractor makes: 48000 numbers a second, a frame for each 480


def inputs_asked(family: str, config: Any, model: Any, sizes: InputSizes) -> Inputs:
    """Return the function that makes a batch: the model's main input, and others that it requires.

    Args:
        family: the model's task, as `huggingface.py` names it.
        config: the model's configuration.
        model: a model of transformers.
        sizes: how large the inputs are.

    Raises:
        UsageError: if the model takes no image of the size that was asked for, or no text of the length.

    """
    asked = inspect.signature(model.forward).parameters
    beside = {name: spec(config) for name, spec in _BESIDE.items() if name in asked}
    note = ""
    if reads_images_in_texts(config, asked):
        main, note = texts_with_images(family, config, model, sizes)
    else:
        main = _main_input(family, config, model, asked, sizes)

    def make(rows: int) -> dict[str, Any]:
        made = main(rows)
        made |= {name: value for name, value in fill(beside, rows).items() if name not in made}
        if "spatial_shapes" in asked and "pixel_values" in made:
            made |= unequal_images(config.vision_config, rows, sizes.image_size)
        return made | {"return_loss": True} if "return_loss" in asked else made

    if sizes.image_size is not None and not _has_images(make(1), sizes.image_size):
        raise UsageError(
            f"expected a model that takes images of a size, got {type(model).__name__}",
            key="image_size",
            hint="leave it out; {inputs=} gives a model whatever it takes",
        )
    return Inputs(make, note)


def _has_images(made: dict[str, Any], size: int) -> bool:
    """Return whether a batch has images of this size, or says how they were cut up."""
    shapes = [tuple(value.shape) for value in made.values() if isinstance(value, torch.Tensor)]
    is_cut = not {"image_sizes", "spatial_shapes", "image_position_ids"}.isdisjoint(made)
    return is_cut or any(shape[-2:] == (size, size) for shape in shapes)


def _main_input(family: str, config: Any, model: Any, asked: Any, sizes: InputSizes) -> Named:
    if not {"pixel_values", "input_ids"} <= set(asked) or not _has_both(config, asked):
        spec = _lone_input(family, config, _name_of_main_input(model), asked, sizes)
        return lambda rows: fill(spec, rows)
    images = _of_images("any", getattr(config, "vision_config", config), "pixel_values", sizes)
    return _pairs(of_texts(family, config, sizes) | images, config, asked)


def _lone_input(family: str, config: Any, main: str, asked: Any, sizes: InputSizes) -> Spec:  # noqa: PLR0911 - a line per kind
    if "past_values" in asked:
        return _of_series(config, asked)
    if "states" in asked:
        widths = {"states": config.state_dim, "actions": config.act_dim, "rewards": 1, "returns_to_go": 1}
        episodes: Spec = {name: ((_STEPS, width), None) for name, width in widths.items()}
        return episodes | {"timesteps": ((_STEPS,), 0), "attention_mask": ((_STEPS,), 1)}
    if "flattened_patches" in asked:  # Pix2Struct's: each patch follows its row and its column
        vision = config.vision_config
        return {
            "flattened_patches": ((vision.seq_len, 2 + vision.patch_embed_hidden_size), None),
            "attention_mask": ((vision.seq_len,), 1.0),
            "labels": ((_LABELS,), WORD),
        }
    if main.startswith("pixel_values") or (family in {"image", "segmentation"} and main != "input_ids"):
        return _of_images(family, config, main, sizes)
    if main == "input_values" and hasattr(config, "codebook_size"):  # a codec's sounds, at its own rate
        length = _SECONDS_OF_SOUND * (first(config, "sampling_rate") or _RATE)
        return {"input_values": ((first(config, "audio_channels") or 1, length), None)}
    if family in {"speech", "sound", "sound class"} or main in {"input_values", "input_features"}:
        return _of_sounds(family, config, main or "input_values")
    if "input_features" in asked and hasattr(config, "audio_config"):  # CLAP's texts and sounds
        sounds = (1, _FRAMES_OF_TEN_SECONDS, config.audio_config.num_mel_bins)
        return of_texts("any", config, sizes) | {"input_features": (sounds, None), "is_longer": ((1,), False)}
    return of_texts("text class" if family == "image" else family, config, sizes)


def _name_of_main_input(model: Any) -> str:
    name: str | list[str] = getattr(model, "main_input_name", "")
    if name == "inputs":  # of two models in one: the first one's
        name = getattr(getattr(model, "encoder", None), "main_input_name", name)
    return name[0] if isinstance(name, list) else name


def _has_both(config: object, asked: Any) -> bool:
    """Return whether a model that may be given texts and images has parts, or a need, for both."""
    needs_texts = asked["input_ids"].default is inspect.Parameter.empty
    return needs_texts or hasattr(config, "vision_config") or hasattr(config, "image_size")


def _pairs(spec: Spec, config: Any, asked: Collection[str]) -> Named:
    """Return texts and images for models such as CLIP, whose loss is of all pairs."""
    seen = first(config, "num_query_tokens", "latent_query_num") or 0

    def make(rows: int) -> dict[str, Any]:
        made = fill(spec, rows)
        ids = made["input_ids"]
        if seen and getattr(config, "image_token_id", None) is not None:
            ids[:, :seen] = config.image_token_id
        if "image_embeds_position_mask" in asked:
            made["image_embeds_position_mask"] = torch.arange(ids.size(1)).repeat(rows, 1) < seen
        return made

    return make


def _of_images(family: str, config: object, name: str, sizes: InputSizes) -> Spec:
    """Return images, or videos where the configuration has a number of frames."""
    found: Any = sizes.image_size or first(config, "image_size", "crop_size") or 224
    sides = (found, found) if isinstance(found, int) else tuple(found)
    channels = first(config, "num_channels", "in_chans") or 3
    frames = first(config, "num_frames", "frames_per_clip") if family in {"video", "any"} else None
    shape = (*((frames,) if frames else ()), channels, *sides)
    images: Spec = {name if name.startswith("pixel_values") else "pixel_values": (shape, None)}
    # boxes are lists of dicts, which nothing can split
    labels: Spec = {
        "image": ((), 0),
        "video": ((), 0),
        "segmentation": (sides, 0),
        "caption": ((_LABELS,), WORD),
    }
    return images | ({"labels": labels[family]} if family in labels else {})


def _of_sounds(family: str, config: Any, name: str) -> Spec:
    bins = first(config, "num_mel_bins", "feature_projection_input_dim", "input_dim") or 80
    if name == "input_values":
        shape: tuple[int, ...] = (_SECONDS_OF_SOUND * _RATE,)
        if config.model_type == "audio-spectrogram-transformer":
            shape = (config.max_length, bins)
    elif config.model_type == "whisper":
        shape = (bins, 2 * config.max_source_positions)
    else:
        shape = (_SECONDS_OF_SOUND * 100, bins)
    labels: dict[str, Spec] = {"any": {}, "sound class": {"labels": ((), 0)}}
    return {name: (shape, None), **labels.get(family, {"labels": ((_LABELS,), 1)})}


def _of_series(config: Any, asked: Collection[str]) -> Spec:
    """Return time series: the past, and the future that is predicted."""
    past, future = config.context_length, getattr(config, "prediction_length", None) or 1
    past += max(getattr(config, "lags_sequence", None) or [0])
    channels = first(config, "num_input_channels") or getattr(config, "input_size", 1)
    has_channels = hasattr(config, "num_input_channels") or channels > 1
    many = (channels,) if has_channels else ()
    features = getattr(config, "num_time_features", 0)
    spec: Spec = {
        "past_values": ((past, *many), None), "future_values": ((future, *many), None),
        "past_observed_mask": ((past, *many), 1.0), "observed_mask": ((past, *many), 1.0),
        "past_time_features": ((past, features), None), "future_time_features": ((future, features), None),
    }  # fmt: skip
    return {name: row for name, row in spec.items() if name in asked}


_BESIDE: dict[str, Callable[[Any], tuple[tuple[int, ...], float | None]]] = {
    "qformer_input_ids": lambda _: ((_REGIONS,), WORD),
    "task_inputs": lambda config: ((config.task_seq_len,), WORD),
    "visual_feats": lambda config: ((_REGIONS, config.visual_feat_dim), None),
    "visual_pos": lambda _: ((_REGIONS, _COORDINATES), None),
    "past_values_padding": lambda config: ((config.context_length,), 0),
    "freq": lambda _: ((1,), 0),
}
"""Inputs that some models require beside their main one."""
