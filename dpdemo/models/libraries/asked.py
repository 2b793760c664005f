"""The inputs that training gives a model of transformers: its arguments, in its config's sizes."""

import inspect
import math
from collections.abc import Callable, Collection
from typing import Any

import torch

from dpdemo.errors import UsageError
from dpdemo.models.libraries import Inputs, InputSizes, Row
from dpdemo.models.libraries.texts import WORD, filled, first, floats, of_texts, text_config

_SECONDS_OF_SOUND, _RATE = 1, 16000
_LABELS = 10
_IMAGE_TOKENS = ("image_token_id", "image_token_index")


def set_image_token(config: Any) -> None:
    """Use the last token for images in a configuration that names none, or one beyond its vocabulary."""
    tokens = getattr(text_config(config), "vocab_size", None) or 0
    for name in _IMAGE_TOKENS:
        named = getattr(config, name, 0)
        if tokens and (named is None or named >= tokens):
            setattr(config, name, tokens - 1)


def inputs_asked(family: str, config: Any, model: Any, sizes: InputSizes) -> Callable[[int], object]:
    """Return the function that makes a batch: the model's main input, and others that it requires.

    For a model that reads images as tokens of its texts, the function raises: only `--inputs` serves there.

    Args:
        family: the model's task, as `huggingface.py` names it.
        config: the model's configuration.
        model: a model of transformers.
        sizes: how large the inputs are.

    Raises:
        UsageError: if the model takes no image of a size, and one was asked for.

    """
    asked = inspect.signature(model.forward).parameters
    if _reads_images_in_texts(config, asked):
        return _no_inputs_for(type(model).__name__)
    row = _main_input(family, config, model, asked, sizes)
    if "spatial_shapes" in asked and "pixel_values" in row:
        row |= _unequal_images(config.vision_config, sizes.image_size)
    if "return_loss" in asked:
        row["return_loss"] = True
    if sizes.image_size is not None and not _has_images(row, sizes.image_size):
        raise UsageError(
            f"expected a model that takes images of a size, got {type(model).__name__}",
            key="image_size",
            hint="leave it out; {inputs=} gives a model whatever it takes",
        )
    return Inputs(row)


def _reads_images_in_texts(config: object, asked: Any) -> bool:
    """Return whether a model reads images as tokens of its texts, but also texts alone."""
    images = asked.get("pixel_values")
    is_marked = any(hasattr(config, name) for name in _IMAGE_TOKENS)
    can_do_without = images is None or images.default is not images.empty
    return can_do_without and is_marked


def _no_inputs_for(name: str) -> Callable[[int], object]:
    def refuse(_: int) -> object:
        raise UsageError(
            f"expected inputs of your own for {name}, which reads images as tokens of its texts, got none",
            key="inputs",
            hint="{inputs=} names a function that takes the batch size and returns texts, images, or both",
        )

    return refuse


def _has_images(row: Row, size: int) -> bool:
    """Return whether a sample has an image of this size, or says how it was cut up."""
    shapes = [tuple(value.shape) for value in row.values() if isinstance(value, torch.Tensor)]
    return "spatial_shapes" in row or any(shape[-2:] == (size, size) for shape in shapes)


def _main_input(family: str, config: Any, model: Any, asked: Any, sizes: InputSizes) -> Row:
    if not {"pixel_values", "input_ids"} <= set(asked) or not _has_both(config, asked):
        return _lone_input(family, config, _name_of_main_input(model), sizes)
    images = _of_images("any", getattr(config, "vision_config", config), "pixel_values", sizes)
    return _pair(of_texts(family, config, sizes) | images, config, asked)


def _lone_input(family: str, config: Any, main: str, sizes: InputSizes) -> Row:
    if main.startswith("pixel_values") or (family in {"image", "segmentation"} and main != "input_ids"):
        return _of_images(family, config, main, sizes)
    if family in {"speech", "sound", "sound class"} or main in {"input_values", "input_features"}:
        return _of_sounds(family, config, main or "input_values")
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


def _pair(row: Row, config: Any, asked: Collection[str]) -> Row:
    """Mark a text and an image for models such as CLIP, whose loss is of all pairs."""
    seen = first(config, "num_query_tokens", "latent_query_num") or 0
    if seen and getattr(config, "image_token_id", None) is not None:
        row["input_ids"][:, :seen] = config.image_token_id
    if "image_embeds_position_mask" in asked:
        row["image_embeds_position_mask"] = torch.arange(row["input_ids"].size(1))[None] < seen
    return row


def _of_images(family: str, config: object, name: str, sizes: InputSizes) -> Row:
    """Return an image, or a video where the configuration has a number of frames."""
    found: Any = sizes.image_size or first(config, "image_size", "crop_size") or 224
    sides = (found, found) if isinstance(found, int) else tuple(found)
    channels = first(config, "num_channels", "in_chans") or 3
    frames = first(config, "num_frames", "frames_per_clip") if family in {"video", "any"} else None
    shape = (*((frames,) if frames else ()), channels, *sides)
    row = {name if name.startswith("pixel_values") else "pixel_values": floats(*shape)}
    if family in {"image", "video"}:  # boxes are lists of dicts, which nothing can split
        row["labels"] = filled(0)
    elif family == "segmentation":
        row["labels"] = filled(0, *sides)
    elif family == "caption":
        row["labels"] = filled(WORD, _LABELS)
    return row


def _unequal_images(vision: Any, size: int | None) -> Row:
    """Make an image as patches, with its rows and columns; by default as many as have positions."""
    side = size // vision.patch_size if size else math.isqrt(vision.num_patches)
    return {
        "pixel_values": floats(side * side, vision.num_channels * vision.patch_size**2),
        "pixel_attention_mask": torch.ones(1, side * side, dtype=torch.int64),
        "spatial_shapes": torch.full((1, 2), side),
    }


def _of_sounds(family: str, config: Any, name: str) -> Row:
    bins = first(config, "num_mel_bins", "feature_projection_input_dim", "input_dim") or 80
    if name == "input_values":
        shape: tuple[int, ...] = (_SECONDS_OF_SOUND * _RATE,)
        if config.model_type == "audio-spectrogram-transformer":
            shape = (config.max_length, bins)
    elif config.model_type == "whisper":
        shape = (bins, 2 * config.max_source_positions)
    else:
        shape = (_SECONDS_OF_SOUND * 100, bins)
    labels = {"any": {}, "sound class": {"labels": filled(0)}}
    return {name: floats(*shape), **labels.get(family, {"labels": filled(1, _LABELS)})}
