"""The CPU's own kernel of attention, and what CUDA's keep and lay out in its place.

Where `attention.py` finds that the CPU runs attention as one kernel too, that is called as it is: one
operator forward and one backward, recorded by autograd as on CUDA. Only the bytes and the layouts differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.labels import stamp, stamp_all
from dpdemo.virtual.ledger import Allocation
from dpdemo.virtual.ops.operands import common_gpu
from dpdemo.virtual.ops.rules import rule
from dpdemo.virtual.ops.widening import cast

if TYPE_CHECKING:
    from torch import Tensor

    from dpdemo.virtual.state import Session

_ROWS = 32  # the efficient kernel keeps the log-sum-exp of a multiple of 32 rows (kAlignLSE)
FLASH_HEAD = 256  # the widest that the flash kernel takes
_HALF = (torch.float16, torch.bfloat16)
_FLASH_ON_CPU = 1  # `SDPBackend::flash_attention`
_aten: Any = torch.ops.aten
_choice: Any = torch._fused_sdp_choice


def is_whole_on_cpu(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any]
) -> bool:
    """Return whether the CPU has one kernel for this call, forward and backward."""
    if options["dropout_p"] or options["enable_gqa"] or (mask is not None and mask.requires_grad):
        return False
    with torch._C._DisableTorchDispatch():
        return bool(_choice(query, key, value, mask, **options) == _FLASH_ON_CPU)


def kept_and_scratch_bytes(query: Tensor, *, flash: bool) -> tuple[int, int]:
    """Return what CUDA's kernel keeps beside its operands and result, and what its backward pass needs."""
    batch, heads, rows, width = query.shape
    kept = rows if flash else -(-rows // _ROWS) * _ROWS
    scratch = batch * heads * kept  # the dot products of gradient and result, one a row
    if query.dtype in _HALF:
        scratch += batch * heads * rows * width  # the gradient of q, added up in float32
    return batch * heads * kept * 4, scratch * 4


def _is_flash(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether it is the flash kernel that CUDA runs here: for half precision without a mask."""
    query = args[0]
    return kwargs.get("attn_mask") is None and query.dtype in _HALF and query.size(-1) <= FLASH_HEAD


def _with_rows_first(tensor: Tensor) -> Tensor:
    """Lay a tensor out as the kernels do: rows before heads."""
    _, heads, rows, width = tensor.shape
    if tensor.stride() == (rows * heads * width, width, heads * width, 1):
        return tensor
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def _run_wide(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute in float32 what is float16, which is slow on most CPUs."""
    named = {name: cast(value, torch.float16, torch.float32) for name, value in kwargs.items()}
    return func(*cast(args, torch.float16, torch.float32), **named)


@rule(
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
    why="it stands for CUDA's kernels, which keep other bytes",
)
def _forward(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    index = common_gpu(session, func, args, kwargs)
    if index is None:
        return func(*args, **kwargs)
    result, sums = _run_wide(func, args, kwargs)
    with torch._C._DisableTorchDispatch():
        result = _with_rows_first(result.to(args[0].dtype))
    stamp(result, session, index)
    is_kept = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in args[:3])
    kept, _ = kept_and_scratch_bytes(args[0], flash=_is_flash(args, kwargs))
    sums.untyped_storage().__dict__[session.key] = Allocation(session.ledger, index, kept * is_kept)
    return result, sums


@rule(
    _aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    why="it stands for CUDA's kernels, which lay gradients out in their own way",
)
def _backward(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    index = common_gpu(session, func, args, kwargs)
    if index is None:
        return func(*args, **kwargs)
    flash = _is_flash(args[1:], kwargs)
    scratch = Allocation(session.ledger, index, kept_and_scratch_bytes(args[1], flash=flash)[1])
    found = _run_wide(func, args, kwargs)
    found = [gradient.to(args[1].dtype) for gradient in found]
    if not flash:
        with torch._C._DisableTorchDispatch():
            found = list(map(_with_rows_first, found))
    stamp_all(found, session, index)
    del scratch
    return tuple(found)
