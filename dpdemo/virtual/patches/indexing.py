"""`x[index]` and `x[index] = value`: the index and the value may be on another device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.applying import Patch, group, of_session, stands_in
from dpdemo.virtual.labels import gpu_of
from dpdemo.virtual.ops.meta import is_without_numbers
from dpdemo.virtual.patches.tensor import beside
from dpdemo.virtual.transfer import move

if TYPE_CHECKING:
    from dpdemo.virtual.state import Session

_Tensor = torch.Tensor


@stands_in(_Tensor, "__setitem__", why="what names a device: to C++ every tensor is on the CPU")
def _setitem(self: torch.Tensor, index: Any, value: Any) -> None:
    """Assign to elements; the operands may be on two devices."""
    if is_without_numbers() and self.is_meta:
        index = _with_numbers(index)
        if isinstance(value, (int, float, complex)):
            # C++ would make as many numbers as it fills
            value = torch.full((), value, dtype=self.dtype, device="cpu")
    if _is_plain_index(index):  # else it is an `index_put_`, whose value must be where `self` is
        value = beside(self, value)
    elif not isinstance(value, _Tensor) and (home := gpu_of(self)) is not None:
        index = _moved(index, home)  # which an `index_put_` takes; from 2.15 on C++ may not choose one
    torch._C.TensorBase.__setitem__(self, index, value)


def _moved(index: Any, home: int) -> Any:
    """Bring the CPU tensors of an index to a GPU, as CUDA's `index_put_` does itself."""
    if isinstance(index, tuple):
        return tuple(_moved(item, home) for item in index)
    is_on_cpu = isinstance(index, _Tensor) and index.dim() > 0 and gpu_of(index) is None
    return move(index, home) if is_on_cpu else index


@of_session
def _lists_in_index(session: Session) -> list[Patch]:
    why = "C++ makes a list in an index without its numbers"
    return group(_Tensor, why, __getitem__=_getitem) if session.is_meta else []


def _getitem(self: torch.Tensor, index: Any) -> torch.Tensor:
    if is_without_numbers() and self.is_meta:
        index = _with_numbers(index)
    found: torch.Tensor = torch._C.TensorBase.__getitem__(self, index)
    return found


def _with_numbers(index: Any) -> Any:
    """Make tensors of the lists in an index now: C++ would make them where `self` is, without numbers."""
    if isinstance(index, tuple):
        return tuple(map(_listed, index)) if any(map(_is_list, index)) else index
    return _listed(index) if _is_list(index) else index


def _is_list(item: Any) -> bool:
    is_array = hasattr(item, "__array__") and bool(getattr(item, "ndim", 0))
    return isinstance(item, (list, tuple, range)) or (is_array and not isinstance(item, _Tensor))


def _listed(item: Any) -> Any:
    if not _is_list(item):
        return item
    try:
        made = torch.tensor(item, device="cpu")
    except (RuntimeError, TypeError, ValueError):  # slices and the like: an index that is written as a list
        return item
    return made if made.numel() else made.long()


def _is_plain_index(index: Any) -> bool:
    """Return whether an index picks a view: numbers, slices and the like, no tensors or lists."""
    items = index if isinstance(index, tuple) else (index,)
    return all(
        item is None or item is Ellipsis or isinstance(item, (int, slice)) or _is_number(item)
        for item in items
    )


def _is_number(item: Any) -> bool:
    return isinstance(item, _Tensor) and item.dim() == 0 and not item.dtype.is_floating_point
