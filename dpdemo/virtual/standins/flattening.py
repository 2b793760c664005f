"""Many tensors in one, and taken apart again: what DataParallel's copies and sums of gradients go through.

C++ runs two operators per tensor (a view and a slice), hundreds in a step. Here they run at once, since
nothing of theirs is counted or could fail: they are views of one storage, on one GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.labels import as_cpp, stamp
from dpdemo.virtual.state import is_seen_by_us_alone, the_session
from dpdemo.virtual.transfer import device_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

flatten_by_pytorch: Any = torch._C._nn.flatten_dense_tensors
unflatten_by_pytorch: Any = torch._C._nn.unflatten_dense_tensors


@as_cpp
def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Stand in for `torch._C._nn.flatten_dense_tensors`."""
    homes = {device_index(tensor) for tensor in tensors}
    if len(homes) != 1 or homes == {None} or not _are_plain(tensors):
        whole: Tensor = flatten_by_pytorch(tensors)
        return whole
    with torch._C._DisableTorchDispatch():
        whole = flatten_by_pytorch(tensors)
    stamp(whole, the_session(), homes.pop())  # type: ignore[arg-type] # not None: seen above
    return whole


@as_cpp
def unflatten(whole: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Stand in for `torch._C._nn.unflatten_dense_tensors`."""
    index = device_index(whole)
    if index is not None and _are_plain((whole, *tensors)):
        with torch._C._DisableTorchDispatch():
            parts: list[Tensor] = unflatten_by_pytorch(whole, tensors)
    else:
        parts = unflatten_by_pytorch(whole, tensors)
    for part in parts if index is not None else ():
        if not part.numel():  # of no storage: C++ makes it anew
            stamp(part, the_session(), index)  # type: ignore[arg-type] # not None: it has parts
    return parts


def _are_plain(tensors: Sequence[Tensor]) -> bool:
    """Return whether tensors can be put together and taken apart by views alone."""
    return is_seen_by_us_alone() and all(
        isinstance(tensor, torch.Tensor)
        and type(tensor).__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        for tensor in tensors
    )
