"""Scatter with chunk sizes: `torch.nn.parallel.scatter_kwargs` for unequal chunks.

The structures are torch's (`torch/nn/parallel/scatter_gather.py`, scatter): tensors inside tuples, named
tuples, lists and dicts are cut, and of everything else each replica gets a reference. So is the cutting:
`torch.nn.parallel._functions.Scatter` takes chunk sizes, which `DataParallel` leaves at None.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.parallel._functions import Scatter

from dpdemo.arithmetic.chunk import Split
from dpdemo.watching.tree import flatten


class Scattered(NamedTuple):
    """The arguments of each replica, and the GPU that it is on; GPUs that get no row are left out."""

    device_ids: tuple[int, ...]
    args: tuple[tuple[object, ...], ...]
    kwargs: tuple[dict[str, object], ...]


def scatter_by(
    rule: Callable[[int], Split],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    device_ids: Sequence[int],
    dim: int,
) -> Scattered:
    """Scatter a call's arguments in chunks of unequal sizes.

    Args:
        rule: returns the split of a batch of so many rows over the devices.
        args: positional arguments; every tensor in them has the batch's rows along `dim`.
        kwargs: keyword arguments, likewise.
        device_ids: ordinals of the GPUs, in the order of the chunks.
        dim: the dimension that holds the batch.

    Raises:
        ValueError: if the tensors differ in their number of rows, or one has no such dimension.

    """
    if not args and not kwargs:
        return Scattered((), (), ())
    rows = _rows([*enumerate(args), *kwargs.items()], dim)
    split = rule(rows or 0)  # without a tensor, each GPU that has a weight calls the module
    targets = tuple(device_ids[number] for number in split.used())
    sizes = split.sizes()

    def cut(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
        chunks: tuple[torch.Tensor, ...] = Scatter.apply(targets, sizes, dim, tensor)  # type: ignore[no-untyped-call]
        return chunks

    pieces = _parts(args, cut, len(targets)) if args else [()] * len(targets)
    named = _parts(kwargs, cut, len(targets)) if kwargs else [{} for _ in targets]
    return Scattered(targets, tuple(pieces), tuple(named))


def _parts(value: object, cut: Callable[[torch.Tensor], Sequence[object]], count: int) -> Sequence[Any]:
    """Return the part of a value for each of `count` replicas, in containers as torch makes them."""
    if isinstance(value, torch.Tensor):
        return cut(value)
    if not isinstance(value, (tuple, list, dict)) or not value:
        return [value] * count
    inner = value.values() if isinstance(value, dict) else value
    columns = zip(*[_parts(item, cut, count) for item in inner], strict=True)
    if isinstance(value, dict):
        return [type(value)(zip(value, column, strict=True)) for column in columns]
    if isinstance(value, list):
        return [list(column) for column in columns]
    return [type(value)(*column) for column in columns] if hasattr(value, "_fields") else list(columns)


def _rows(items: Iterable[tuple[object, object]], dim: int) -> int | None:
    """Return how many rows the batch has; None without a tensor."""
    found: dict[int, str] = {}
    named = ((f"`{key}`{path}", leaf) for key, value in items for path, leaf in flatten(value))
    for path, tensor in named:
        if not isinstance(tensor, torch.Tensor):
            continue
        if not -tensor.dim() <= dim < tensor.dim():
            raise ValueError(
                f"expected tensors with a dimension {dim}, which is cut, got the shape {list(tensor.shape)} "
                f"- at argument {path}. A number for all replicas must not be a tensor: pass `.item()`"
            )
        found.setdefault(tensor.size(dim), path)
    if len(found) > 1:
        (rows, path), (others, at) = list(found.items())[:2]
        raise ValueError(
            f"expected tensors of {rows} rows along dimension {dim}, as argument {path} has, got {others} - "
            f"at argument {at}. All are cut by the same chunk sizes: expand what is not a batch to {rows} "
            "rows, or make it a buffer of the model"
        )
    return next(iter(found), None)
