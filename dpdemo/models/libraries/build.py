"""Build the model of a library; only the named library is imported."""

import difflib
from collections.abc import Callable
from typing import Any

from torch import nn

from dpdemo.errors import UsageError
from dpdemo.models.libraries import Inputs, InputSizes
from dpdemo.models.libraries.texts import floats

_CHANNELS, _SIZE = 3, 224
_SIZES = {"inception_v3": 299}


def make_library_model(
    library: str, name: str, sizes: InputSizes
) -> tuple[nn.Module, Callable[[int], object]]:
    """Build a library's model with random weights, and the function that makes its inputs.

    Args:
        library: "transformers", "torchvision" or "timm".
        name: the model's name there, such as "gpt2-xl"; of transformers also a path of a config.json.
        sizes: how large the inputs are.

    Raises:
        UsageError: if the library is not installed, or has no such model.

    """
    try:
        if library == "transformers":
            from dpdemo.models.libraries.huggingface import make_model

            return make_model(name, sizes)
        return _make_image_model(library, name, sizes)
    except ImportError as error:
        raise UsageError(
            f"expected {library} to be installed, got {type(error).__name__}: {error}",
            hint=f"pip install {library}",
        ) from error


def _make_image_model(library: str, name: str, sizes: InputSizes) -> tuple[nn.Module, Inputs]:
    """Build a model for images, and the function that makes a batch of them.

    Raises:
        UsageError: if the library has no model of this name, or cannot build it.

    """
    known, build, size_of = _library(library)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        raise UsageError(
            f"expected a model of {library}, got {name!r}",
            hint=f"did you mean {', '.join(near)}?" if near else f"it has {len(known)}, such as {known[0]}",
        )
    try:
        model: nn.Module = build(name)
    except Exception as error:
        raise UsageError(f"expected a model of {library}, got {type(error).__name__}: {error}") from error
    channels, height, width = size_of(model, name)
    if sizes.image_size is not None:
        height = width = sizes.image_size
    return model, Inputs(floats(channels, height, width))


def _library(library: str) -> tuple[list[str], Any, Any]:
    """Return the names of a library's models, what builds one, and what gives the shape of its images."""
    if library == "timm":
        import timm

        return timm.list_models(), lambda name: timm.create_model(name, pretrained=False), _timm_shape
    from torchvision import models

    return models.list_models(), lambda name: models.get_model(name, weights=None), _torchvision_shape


def _timm_shape(model: Any, _: str) -> tuple[int, int, int]:
    channels, height, width = model.default_cfg.get("input_size", (_CHANNELS, _SIZE, _SIZE))
    return channels, height, width


def _torchvision_shape(_: Any, name: str) -> tuple[int, int, int]:
    size = _SIZES.get(name, _SIZE)
    return _CHANNELS, size, size
