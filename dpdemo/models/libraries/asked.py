"""The inputs that training gives a model of transformers: what it asks for, in its config's sizes."""

import inspect
from collections.abc import Callable, Collection
from typing import Any

import torch

from dpdemo.errors import UsageError
from dpdemo.models.libraries import Inputs, InputSizes, Named
from dpdemo.models.libraries.imagetexts import reads_images_in_texts, texts_with_images, unequal_images
from dpdemo.models.libraries.texts import WORD, first, of_texts

_SECONDS_OF_SOUND, _RATE = 1, 16000
_LABELS, _REGIONS, _COORDINATES = 10, 36, 4
_FRAMES_OF_TEN_SECONDS = 1001  # what ClapFeatureExtractor makes: 48000 numbers a second, a frame for each 480
_FILMS = {"film", "any"}


def inputs_asked(family: str, config: Any, model: Any, sizes: InputSizes) -> Inputs:
    """Return the function that makes a batch: the model's main input, and what it cannot do without.

    Args:
        family: what the model is for, as `huggingface.py` names it.
        config: the model's configuration.
        model: a model of transformers.
        sizes: how large the inputs are.

    Raises:
        UsageError: if the model takes no image of the size that was asked for, or no text of the length.

    """
    asked = inspect.signature(model.forward).parameters
    note = ""
    if reads_images_in_texts(config, asked):
        main, note = texts_with_images(family, config, model, sizes)
    else:
        main = _main_input(family, config, model, asked, sizes)
    beside = {name: make_one for name, make_one in _BESIDE.items() if name in asked}

    def make(rows: int) -> dict[str, Any]:
        made = main(rows)
        made |= {name: make_one(config, rows) for name, make_one in beside.items() if name not in made}
        if "spatial_shapes" in asked and "pixel_values" in made:
            made |= unequal_images(config.vision_config, rows, sizes.image_size)
        return made

    if sizes.image_size is not None and not _has_images(make(1), sizes.image_size):
        raise UsageError(
            f"expected a model that takes images of a size, got {type(model).__name__} - at `--image-size`",
            hint="leave it out; --inputs gives a model whatever it takes",
        )
    return Inputs(make, note)


def _has_images(made: dict[str, Any], size: int) -> bool:
    """Return whether a batch has images of this size, or says how they were cut up."""
    shapes = [tuple(value.shape) for value in made.values() if isinstance(value, torch.Tensor)]
    is_cut = not {"image_sizes", "spatial_shapes", "image_position_ids"}.isdisjoint(made)
    return is_cut or any(shape[-2:] == (size, size) for shape in shapes)


def _main_input(family: str, config: Any, model: Any, asked: Any, sizes: InputSizes) -> Named:  # noqa: PLR0911 - a line per kind
    main = _name_of_main_input(model)
    if "past_values" in asked:
        return _of_series(config, asked)
    if "states" in asked:
        return _of_episodes(config)
    if "flattened_patches" in asked:
        return _of_patches(config)
    if {"pixel_values", "input_ids"} <= set(asked) and _has_both(config, asked):
        return _of_pairs(family, config, asked, sizes)
    if main.startswith("pixel_values") or (family in {"image", "segmentation"} and main != "input_ids"):
        return _of_images(family, config, main, sizes)
    if main == "input_values" and hasattr(config, "codebook_size"):
        return _of_waves(config)
    if family in {"speech", "sound", "sound class"} or main in {"input_values", "input_features"}:
        return _of_sounds(family, config, main or "input_values")
    if "input_features" in asked and hasattr(config, "audio_config"):
        return _of_texts_and_sounds(config, sizes)
    return of_texts("text class" if family == "image" else family, config, sizes)


def _name_of_main_input(model: Any) -> str:
    name: str | list[str] = getattr(model, "main_input_name", "")
    if name == "inputs":  # of two models in one: what the first of them takes
        name = getattr(getattr(model, "encoder", None), "main_input_name", name)
    return name[0] if isinstance(name, list) else name


def _has_both(config: object, asked: Any) -> bool:
    """Return whether a model that may be given texts and images has parts, or a need, for both."""
    needs_texts = asked["input_ids"].default is inspect.Parameter.empty
    return needs_texts or hasattr(config, "vision_config") or hasattr(config, "image_size")


def _of_pairs(family: str, config: Any, asked: Collection[str], sizes: InputSizes) -> Named:
    """Make texts and images, which models like CLIP hold against each other: their loss is of all pairs."""
    texts = of_texts(family, config, sizes)
    images = _of_images("any", getattr(config, "vision_config", config), "pixel_values", sizes)
    seen = first(config, "num_query_tokens", "latent_query_num") or 0

    def make(rows: int) -> dict[str, Any]:
        both = {**texts(rows), **images(rows)}
        if seen and getattr(config, "image_token_id", None) is not None:
            both["input_ids"][:, :seen] = config.image_token_id  # where the words for the image stand
        if "image_embeds_position_mask" in asked:  # the same, said otherwise
            both["image_embeds_position_mask"] = (
                torch.arange(both["input_ids"].size(1)).repeat(rows, 1) < seen
            )
        return both | {"return_loss": True} if "return_loss" in asked else both

    return make


def _of_images(family: str, config: object, name: str, sizes: InputSizes) -> Named:
    """Make images, or films where the configuration says of how many images: under the name that is asked."""
    found: Any = sizes.image_size or first(config, "image_size", "crop_size") or 224
    height, width = (found, found) if isinstance(found, int) else tuple(found)
    channels = first(config, "num_channels", "in_chans") or 3
    frames = first(config, "num_frames", "frames_per_clip") if family in _FILMS else None
    shape = (*((frames,) if frames else ()), channels, height, width)

    def make(rows: int) -> dict[str, torch.Tensor]:
        made = {
            name if name.startswith("pixel_values") else "pixel_values": torch.empty(
                rows, *shape, device="meta"
            )
        }
        if family == "caption":
            return made | {"labels": torch.full((rows, _LABELS), WORD)}
        label = (rows, height, width) if family == "segmentation" else (rows,)
        is_labelled = family in {
            "image",
            "film",
            "segmentation",
        }  # boxes are lists of dicts, which nothing can split
        return made | ({"labels": torch.zeros(label, dtype=torch.int64)} if is_labelled else {})

    return make


def _of_patches(config: Any) -> Named:
    """Make screens as Pix2Struct sees them: patches, each after its row and its column."""
    vision = config.vision_config
    shape = (vision.seq_len, 2 + vision.patch_embed_hidden_size)

    def make(rows: int) -> dict[str, torch.Tensor]:
        return {
            "flattened_patches": torch.empty(rows, *shape, device="meta"),
            "attention_mask": torch.ones(rows, vision.seq_len),
            "labels": torch.full((rows, _LABELS), WORD),
        }

    return make


def _of_sounds(family: str, config: Any, name: str) -> Named:
    bins = first(config, "num_mel_bins", "feature_projection_input_dim", "input_dim") or 80
    if name == "input_values":
        shape: tuple[int, ...] = (_SECONDS_OF_SOUND * _RATE,)
        if config.model_type == "audio-spectrogram-transformer":
            shape = (config.max_length, bins)
    elif config.model_type == "whisper":
        shape = (bins, 2 * config.max_source_positions)
    else:
        shape = (_SECONDS_OF_SOUND * 100, bins)

    def make(rows: int) -> dict[str, torch.Tensor]:
        made = {name: torch.empty(rows, *shape, device="meta")}
        if family == "any":
            return made
        label = (rows,) if family == "sound class" else (rows, _LABELS)
        return made | {"labels": torch.ones(label, dtype=torch.int64) * (family != "sound class")}

    return make


def _of_waves(config: object) -> Named:
    """Make sounds as a codec takes them, at its own rate."""
    length = _SECONDS_OF_SOUND * (first(config, "sampling_rate") or _RATE)
    channels = first(config, "audio_channels") or 1
    return lambda rows: {"input_values": torch.empty(rows, channels, length, device="meta")}


def _of_texts_and_sounds(config: Any, sizes: InputSizes) -> Named:
    texts, bins = of_texts("any", config, sizes), config.audio_config.num_mel_bins

    def make(rows: int) -> dict[str, object]:
        sounds = torch.empty(rows, 1, _FRAMES_OF_TEN_SECONDS, bins, device="meta")
        longer = torch.zeros(rows, 1, dtype=torch.bool)
        return {**texts(rows), "input_features": sounds, "is_longer": longer, "return_loss": True}

    return make


def _of_series(config: Any, asked: Collection[str]) -> Named:
    """Make time series: what is known of the past, and what is to be predicted."""
    past, future = config.context_length, getattr(config, "prediction_length", None) or 1
    past += max(getattr(config, "lags_sequence", None) or [0])
    channels = first(config, "num_input_channels") or getattr(config, "input_size", 1)
    has_channels = hasattr(config, "num_input_channels") or channels > 1
    many = (channels,) if has_channels else ()
    features = getattr(config, "num_time_features", 0)
    shapes = {
        "past_values": (past, *many), "future_values": (future, *many),
        "past_observed_mask": (past, *many), "observed_mask": (past, *many),
        "past_time_features": (past, features), "future_time_features": (future, features),
    }  # fmt: skip

    def make(rows: int) -> dict[str, torch.Tensor]:
        return {
            name: torch.ones(rows, *shape) if "mask" in name else torch.empty(rows, *shape, device="meta")
            for name, shape in shapes.items()
            if name in asked
        }

    return make


def _of_episodes(config: Any) -> Named:
    """Make what an agent saw, did and got, as a Decision Transformer takes it."""
    steps = 20  # as its training on Gym has it
    widths = {"states": config.state_dim, "actions": config.act_dim, "rewards": 1, "returns_to_go": 1}

    def make(rows: int) -> dict[str, torch.Tensor]:
        made = {name: torch.empty(rows, steps, width, device="meta") for name, width in widths.items()}
        times = torch.arange(steps).repeat(rows, 1)
        return made | {"timesteps": times, "attention_mask": torch.ones_like(times)}

    return make


def _ids(length: Callable[[Any], int], word: int = WORD) -> Callable[[Any, int], torch.Tensor]:
    return lambda config, rows: torch.full((rows, length(config)), word)


_BESIDE: dict[str, Callable[[Any, int], torch.Tensor]] = {
    "qformer_input_ids": _ids(lambda _: _REGIONS),
    "task_inputs": _ids(lambda config: config.task_seq_len),
    "visual_feats": lambda config, rows: torch.empty(rows, _REGIONS, config.visual_feat_dim, device="meta"),
    "visual_pos": lambda _, rows: torch.empty(rows, _REGIONS, _COORDINATES, device="meta"),
    "past_values_padding": _ids(lambda config: config.context_length, word=0),
    "freq": _ids(lambda _: 1, word=0),
}
"""What some models ask for beside their main input."""
