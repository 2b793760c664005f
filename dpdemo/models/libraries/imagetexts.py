"""Texts with an image in them, for models that read an image as a number of words: LLaVA, Gemma 3, SmolVLM.

The model itself tells how many: it is asked for the features of one image, and each replaces a word.
Models that want the patches of all images in one tensor get no image: DataParallel would cut through them.
"""

import inspect
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from dpdemo.errors import UsageError
from dpdemo.models.libraries import InputSizes, Row
from dpdemo.models.libraries.texts import first, floats, length_of, of_texts, text_config
from dpdemo.watching.tree import tensors_in

_WORDS_OF_IMAGES = ("image_token_id", "image_token_index")
_OF_PATCHES = ("grid_", "image_grid", "target_sizes", "image_patches")
_UNSEEN = -100  # what the cross-entropy of labels leaves out
_PLACES = 280  # Gemma4ImageProcessor's max_soft_tokens: the features of the largest image
_PREFIX_FIRST = {"paligemma"}  # its types are 0 for what is given and 1 for what is learned


def reads_images_in_texts(config: object, asked: Any) -> bool:
    """Return whether a model reads images as words of its texts, but also texts alone."""
    images = asked.get("pixel_values")
    is_marked = any(hasattr(config, name) for name in _WORDS_OF_IMAGES)
    can_do_without = images is None or images.default is not images.empty
    return can_do_without and is_marked


def set_image_word(config: Any) -> None:
    """Use the last word for images in a configuration that names none, or one beyond its vocabulary."""
    words = getattr(text_config(config), "vocab_size", None) or 0
    for name in _WORDS_OF_IMAGES:
        named = getattr(config, name, 0)
        if words and (named is None or named >= words):
            setattr(config, name, words - 1)


def texts_with_images(family: str, config: Any, model: nn.Module, sizes: InputSizes) -> tuple[Row, str]:
    """Return a text with an image in it, or a text alone and a note with the reason.

    Raises:
        UsageError: if the model takes no image of the size that was asked for, or a text has no room for it.

    """
    try:
        image, num_words = _image_of(config, model, sizes.image_size)
    except _NoImageError as error:
        if sizes.image_size is not None:
            raise UsageError(
                f"expected an image that {type(model).__name__} takes, got {sizes.image_size} pixels a side: "
                f"{error}",
                key="image_size",
                hint="leave it out for the model's own size; {inputs=} gives a model whatever it takes",
            ) from error
        note = f"Texts alone, without images: {error}. --inputs gives images, and memory for them."
        return _marked(of_texts(family, config, sizes), config, model, 0, _UNSEEN), note
    text = of_texts(family, config, InputSizes(seq_len=_length(config, num_words, sizes)))
    word = next(value for name in _WORDS_OF_IMAGES if (value := getattr(config, name, None)) is not None)
    given = {name: value for name, value in image.items() if name in _asked(model)}
    return _marked(text, config, model, num_words, word) | given, ""


def _marked(row: Row, config: Any, model: Any, num_words: int, word: int) -> Row:
    """Begin a text with the words of an image, and mark them as processors do."""
    asked, ids = _asked(model), row["input_ids"]
    ids[:, :num_words] = word
    if "labels" in row and row["labels"].dim() > 1:
        row["labels"][:, :num_words] = _UNSEEN
    is_image = torch.arange(ids.size(1))[None] < num_words
    is_prefix_first = getattr(config, "model_type", "") in _PREFIX_FIRST
    kinds = {"mm_token_type_ids": is_image, "token_type_ids": is_image ^ is_prefix_first}
    return row | {name: kind.long() for name, kind in kinds.items() if name in asked}


class _NoImageError(Exception):
    """The reason that a model can be given no image."""


def _image_of(config: Any, model: nn.Module, size: int | None) -> tuple[Row, int]:
    """Return an image as the model takes one, and its number of words."""
    name = type(model).__name__
    owner = _vision_module(model)
    if getattr(config, "vision_config", config) is None:
        raise _NoImageError(f"the configuration of {name} describes no part that sees")
    if owner is None:
        raise _NoImageError(f"{name} does not say how many words an image is")
    asked = {**inspect.signature(owner.get_image_features).parameters, **_asked(model)}
    patches = [key for key in asked if any(part in key for part in _OF_PATCHES) and "video" not in key]
    if patches:
        raise _NoImageError(
            f"{name} takes the patches of all images in one tensor (see {patches[0]}), which DataParallel "
            "does not cut where a row ends"
        )
    why = []
    for image in _examples(config, asked, _needed(owner), size):
        try:
            return image, _count_words(owner, model, image)
        except Exception as error:  # noqa: BLE001 - the model's own code, given what may not be its kind of image
            shape = "x".join(map(str, image["pixel_values"].shape))
            why.append(f"of {shape}: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    raise _NoImageError(f"{name} took none, {'; '.join(why)}")


def _vision_module(model: nn.Module) -> Any:
    """Return the module that makes features of images, if it names its input."""
    able: Iterator[Any] = (each for each in model.modules() if hasattr(each, "get_image_features"))
    is_named = lambda each: "pixel_values" in inspect.signature(each.get_image_features).parameters  # noqa: E731
    return next(filter(is_named, able), None)


def _asked(model: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(model.forward).parameters)


def _needed(owner: Any) -> set[str]:
    parameters = inspect.signature(owner.get_image_features).parameters.items()
    return {name for name, parameter in parameters if parameter.default is inspect.Parameter.empty}


def _examples(config: Any, asked: Collection[str], needed: set[str], size: int | None) -> Iterator[Row]:
    """Make an image in each form that models take: cut into tiles or patches, alone, one of a row's."""
    channels = first(config, "num_channels", "in_chans") or 3
    pinpoints = getattr(config, "image_grid_pinpoints", None)
    if pinpoints:
        yield _tiled(config, pinpoints, size, channels)
        return
    if "spatial_shapes" in asked:
        yield unequal_images(config.vision_config, size)
        return
    if "image_position_ids" in asked:
        yield _placed_patches(config.vision_config, size)
        return
    height, width = _sides(config, size)
    beside = {"image_sizes": torch.tensor([[height, width]])} if "image_sizes" in needed else {}
    yield {"pixel_values": floats(channels, height, width), **beside}
    one_of_many = {"pixel_values": floats(1, channels, height, width), **beside}
    if "pixel_attention_mask" in asked:  # what is padding: of a row's images, or of an image's pixels
        yield {**one_of_many, "pixel_attention_mask": torch.ones(1, 1, dtype=torch.bool)}
        one_of_many["pixel_attention_mask"] = torch.ones(1, 1, height, width, dtype=torch.int64)
    yield one_of_many


def _sides(config: Any, size: int | None) -> tuple[int, int]:
    found: Any = size or first(config, "image_size", "resolution") or 224
    return (found, found) if isinstance(found, int) else tuple(found)


def _tiled(config: Any, pinpoints: list[list[int]], size: int | None, channels: int) -> Row:
    """Make an image as LLaVA-NeXT sees it: whole, and cut into tiles; by itself it has two tiles a side."""
    from transformers.image_processing_utils import select_best_resolution

    tile = first(config.vision_config, "image_size")
    side = size or 2 * tile
    height, width = select_best_resolution((side, side), pinpoints)
    tiles = 1 + math.ceil(height / tile) * math.ceil(width / tile)
    return {
        "pixel_values": floats(tiles, channels, tile, tile),
        "image_sizes": torch.tensor([[side, side]]),
    }


def unequal_images(vision: Any, size: int | None = None) -> Row:
    """Make an image as patches, with its rows and columns; by default as many as have positions."""
    side = size // vision.patch_size if size else math.isqrt(vision.num_patches)
    return {
        "pixel_values": floats(side * side, vision.num_channels * vision.patch_size**2),
        "pixel_attention_mask": torch.ones(1, side * side, dtype=torch.int64),
        "spatial_shapes": torch.full((1, 2), side),
    }


def _placed_patches(vision: Any, size: int | None) -> Row:
    """Make an image as Gemma 4 sees it: patches with their places, and room for as many as any image has."""
    pooled = vision.pooling_kernel_size
    most = _PLACES * pooled**2
    side = (size // vision.patch_size if size else math.isqrt(most)) // pooled * pooled
    if side * side > most:
        raise _NoImageError(f"it has at most {most} patches of {vision.patch_size} pixels a side")
    places = torch.full((1, most, 2), -1)
    places[0, : side * side] = torch.cartesian_prod(torch.arange(side), torch.arange(side)).flip(-1)
    return {"pixel_values": floats(most, 3 * vision.patch_size**2), "image_position_ids": places}


def _count_words(owner: Any, model: Any, image: Row) -> int:
    """Ask a model for the features of an image; each takes the place of a word."""
    asked = inspect.signature(owner.get_image_features).parameters
    given = {
        name: torch.ones(value.shape) if value.is_meta else value  # Idefics takes black images for padding
        for name, value in image.items()
        if name in asked
    }
    with torch.random.fork_rng(devices=[]), torch.no_grad(), _as_for_use(owner):
        found = owner.get_image_features(**given)
    features = getattr(found, "pooler_output", found)
    numbers = sum(tensor.numel() for tensor in tensors_in(features))
    width: int = model.get_input_embeddings().weight.size(-1)
    if not numbers or numbers % width:
        raise ValueError(f"its features are {numbers} numbers, which is no multiple of {width}")
    return numbers // width


@contextmanager
def _as_for_use(owner: nn.Module) -> Iterator[None]:
    """Put a model into evaluation, so that a call leaves no statistics in its norms."""
    training = [module for module in owner.modules() if module.training]
    owner.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _length(config: Any, num_words: int, sizes: InputSizes) -> int:
    """Return the length of a text: as asked for, which must hold the image, or image and usual text."""
    if sizes.seq_len is not None:
        if sizes.seq_len <= num_words:
            raise UsageError(
                f"expected a text longer than the {num_words} tokens of its image, got {sizes.seq_len}",
                key="seq_len",
                hint="{seq_len=} counts the image's tokens too; left out, those of the text are added",
            )
        return sizes.seq_len
    text = text_config(config)
    places = getattr(text, "max_position_embeddings", None) or 0
    both = num_words + length_of(text)
    return min(both, places) if places > num_words else both
