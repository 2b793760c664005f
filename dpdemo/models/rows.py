"""The rows of a call's arguments: how many the batch has, and cutting or repeating them."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.parameter import UninitializedParameter

from dpdemo.arithmetic.rows import is_for_each_gpu, likely_rows, sizes_along
from dpdemo.calls.tree import tensors_in, with_parts
from dpdemo.calls.unseen import on_cpu, unseen


def rows_of(args: Any, kwargs: Any, dim: int, num_gpus: int = 0) -> int:
    """Guess the batch size of a call: that of its tensors, or else the length of an argument."""
    pictures = [pictures_in(value) for value in (*args, *kwargs.values())]
    if any(pictures):
        return max(pictures)
    tensors = [
        (owner, leaf)
        for owner, value in enumerate((*args, *kwargs.values()))
        for leaf in tensors_in(value)
        if _has(leaf, dim)
    ]
    of_batch = [pair for pair in tensors if not is_for_gpus(pair[1], dim, num_gpus)] or tensors
    if tensors:
        sizes = sizes_along([tuple(leaf.shape) for _, leaf in of_batch], dim)
        return likely_rows(sizes, [owner for owner, _ in of_batch])
    lengths = [_length(value) for value in (*args, *kwargs.values())]
    return next((length for length in lengths if length), 0)


def is_for_gpus(tensor: torch.Tensor, dim: int, num_gpus: int) -> bool:
    """Return whether a tensor is one number for each GPU."""
    return bool(num_gpus) and is_for_each_gpu(tensor.size(dim), num_gpus, repeated=is_repeated(tensor))


def pictures_in(value: Any) -> int:
    """Count the pictures of a list of them: tensors (channels, height, width), as detectors take."""
    if not isinstance(value, list) or len(value) < 2:
        return 0
    shapes = [tuple(part.shape) for part in value if isinstance(part, torch.Tensor)]
    channels = {shape[0] for shape in shapes if len(shape) == 3}
    are_pictures = len(shapes) == len(value) and all(len(shape) == 3 for shape in shapes)
    return len(value) if are_pictures and len(channels) == 1 and channels <= {1, 3, 4} else 0


def _length(value: object) -> int:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__"):
        first = next(
            (leaf for leaf in vars(value).values() if isinstance(leaf, torch.Tensor) and leaf.dim())
            if hasattr(value, "__dict__")
            else iter(()),
            None,
        )
        return 0 if first is None else len(first)
    if isinstance(value, Mapping):
        return next(
            (len(part) for part in value.values() if isinstance(part, torch.Tensor) and part.dim()), 0
        )
    return length_of(value) or 0


def resize(value: object, whole: int, size: int, dim: int) -> object:  # noqa: PLR0911 - a line per case
    """Cut or repeat to `size` rows whatever has `whole` of them."""
    if size == whole:
        return value
    if isinstance(value, torch.Tensor):
        if not _is_batch(value, whole, dim):
            return value
        return value.index_select(dim, torch.arange(size, device=value.device) % whole)
    if isinstance(value, dict):
        return with_parts(value, [resize(part, whole, size, dim) for part in value.values()])
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        if len(value) == whole and not any(_is_batch(part, whole, dim) for part in value):
            return type(value)(value[row % whole] for row in range(size))
        return type(value)(resize(part, whole, size, dim) for part in value)
    if hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module) and not callable(value):
        return _resize_inside(value, whole, size, dim)
    if hasattr(value, "take") and hasattr(value, "shape") and value.shape[:1] == (whole,):
        return value.take([row % whole for row in range(size)], axis=0)  # numpy
    return value


def _resize_inside(value: object, whole: int, size: int, dim: int) -> object:
    twin = copy.copy(value)
    try:
        for name, part in vars(value).items():
            setattr(twin, name, resize(part, whole, size, dim))
    except (AttributeError, TypeError):  # frozen
        return value
    return twin


def _is_batch(value: object, whole: int, dim: int) -> bool:
    return isinstance(value, torch.Tensor) and _has(value, dim) and value.size(dim) == whole


def _has(tensor: torch.Tensor, dim: int) -> bool:
    return -tensor.dim() <= dim < tensor.dim()


def is_repeated(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a column that holds one number over and over."""
    if tensor.dim() == 0 or not 1 < tensor.size(0) == tensor.numel() <= 64 or tensor.layout != torch.strided:
        return False
    if tensor.device.type == "meta" or isinstance(tensor, UninitializedParameter):
        return False
    with unseen(tensor):
        column = on_cpu(tensor).reshape(-1)
        return bool((column == column[0]).all())


def length_of(value: Any) -> int | None:
    """Ask a value for its length; None where it has none."""
    try:
        return len(value)
    except Exception:  # noqa: BLE001 - a user's own __len__
        return None
