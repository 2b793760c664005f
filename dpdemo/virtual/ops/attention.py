"""`scaled_dot_product_attention` as CUDA runs it: which bytes it keeps.

CUDA's fused kernels never hold the attention weights: they keep the log-sum-exp of each row, and make the
weights again in the backward pass. The CPU does so only without dropout. Which calls CUDA fuses stands in
aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (2.13; `can_use_flash_attention` and
`can_use_mem_efficient_attention`), what they keep, in attention.cu and attention_backward.cu beside it.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dpdemo.virtual.applying import stands_in
from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.labels import gpus_of, has_operators_of_its_own
from dpdemo.virtual.ops.casting import cast_for_autocast
from dpdemo.virtual.ops.fused import FUSED, Kernel, is_plain, run_fused
from dpdemo.virtual.ops.single_kernels import dropout
from dpdemo.virtual.ops.widening import cast

_MASK_COLUMNS = 16  # a mask's rows begin at a multiple of 16 numbers (`pad_bias`)
_ROWS = 32  # the efficient kernel keeps the log-sum-exp of a multiple of 32 rows (kAlignLSE)
_FLASH_HEAD = 256  # the widest that the flash kernel takes
_ALIGNED_BYTES = 16  # the efficient kernel reads rows of q, k and v so many bytes at a time
_HALF = (torch.float16, torch.bfloat16)
_aten: Any = torch.ops.aten
_attention: Any = torch._C._nn.scaled_dot_product_attention


@stands_in(torch.nn.functional, "scaled_dot_product_attention", why=FUSED)
@stands_in(torch._C._nn, "scaled_dot_product_attention", why=FUSED)
@functools.wraps(_attention)
def attention(  # noqa: PLR0913, PLR0917 - PyTorch's own
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attend with the kernel that CUDA would choose, and keep its bytes."""
    options = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    homes = gpus_of((query, key, value, attn_mask))
    has_own = any(has_operators_of_its_own(type(tensor)) for tensor in (query, key, value))
    if len(homes) > 1 and not has_own:
        kinds = [tensor.device for tensor in (query, key, value)]
        if len({kind.type for kind in kinds}) > 1:
            raise RuntimeError(  # native/transformers/attention.cpp
                "Expected query, key, and value to have the same device type, but got "
                f"query.device: {kinds[0]} key.device: {kinds[1]} and value.device: {kinds[2]} instead."
            )
    if has_own and homes != {None}:
        return _attention_of_parts(query, key, value, attn_mask, options)
    if homes == {None} or len(homes) > 1 or (is_causal and attn_mask is not None):
        result: Tensor = _attention(query, key, value, attn_mask, **options)
        return result
    query, key, value = cast_for_autocast(query, key, value)
    mask = None if attn_mask is None else _as_numbers(attn_mask, query.dtype)
    flash = mask is None and _takes_flash(query, key, value, shares_keys=enable_gqa)
    fits = flash or _takes_efficient(query, key, value, mask)
    if not fits and not _may_be_unfused(query):
        raise RuntimeError("No available kernel. Aborting execution.")  # `select_sdp_backend` there
    if not is_plain() or not fits:
        return _unfused(query, key, value, mask, options)
    if mask is not None:
        mask = _padded(mask)
    kept_and_scratch = _kept_and_scratch_bytes(query, flash=flash)
    kernel = Kernel(
        functools.partial(_run, options),
        _like,
        *kept_and_scratch,
        is_random=dropout_p > 0,
        operator=functools.partial(_flash if flash else _efficient, options),
    )
    if not flash:
        kernel = dataclasses.replace(kernel, gradient_like=_rows_first)
    return run_fused(kernel, query, key, value, mask)[0]


def _attention_of_parts(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any]
) -> Tensor:
    """Attend with tensors whose class has operators of its own, such as DTensor."""
    if any(hasattr(tensor, "device_mesh") for tensor in (query, key, value)):
        if any(placement.is_shard(2) for placement in getattr(query, "placements", ())):
            raise UnsupportedOpError("attention of DTensors split along the sequence (context parallel)")
        _register_sharding()
        if mask is not None:
            return _unfused(query, key, value, mask, options)
    result: Tensor = _attention(query, key, value, mask, **options)
    return result


@functools.cache
def _register_sharding() -> None:
    """Let DTensor split batches and heads over the ranks in the CPU's kernel, as in CUDA's."""
    from torch.distributed.tensor.experimental import register_sharding

    forward = _aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    register_sharding(forward)(_split(num_outputs=2, num_inputs=3))
    register_sharding(backward)(_split(num_outputs=3, num_inputs=6))


def _split(num_outputs: int, num_inputs: int) -> Callable[..., Any]:
    """Return a rule: all tensors whole, or all split along heads, or along the batch."""
    from torch.distributed.tensor import Replicate, Shard

    def rule(*args: Any, **_: Any) -> list[tuple[list[Any], list[Any]]]:
        others = [None] * (len(args) - num_inputs)
        return [
            ([placement] * num_outputs, [*[placement] * num_inputs, *others])
            for placement in (Replicate(), Shard(1), Shard(0))
        ]

    return rule


def _as_numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn a boolean mask into numbers to add (`convert_boolean_attn_mask`)."""
    if mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask.logical_not(), float("-inf"))


def _is_regular(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether batch, heads and lengths fit together without broadcasting."""
    return (
        query.dim() == key.dim() == value.dim() == 4
        and query.size(0) == key.size(0)
        and key.shape[:3] == value.shape[:3]
        and query.size(-1) == key.size(-1)
        and 0 not in query.shape
        and 0 not in value.shape
    )


def _takes_flash(query: Tensor, key: Tensor, value: Tensor, *, shares_keys: bool) -> bool:
    """Return whether flash runs; it alone knows heads of queries that share keys (`enable_gqa`)."""
    switches: Any = torch.backends.cuda
    is_known = query.dtype in _HALF and _is_regular(query, key, value)
    return (
        switches.flash_sdp_enabled()
        and is_known
        and (query.size(1) == key.size(1) or (shares_keys and query.size(1) % key.size(1) == 0))
        and query.size(-1) == value.size(-1) <= _FLASH_HEAD
        and (query.size(-1) == 1 or _is_read_in_rows(query, key, value))
    )


def _is_read_in_rows(*operands: Tensor | None) -> bool:
    """Return whether the numbers of a row lie side by side (`check_last_dim_stride_equals_1_dense`)."""
    return all(operand is None or operand.stride(-1) == 1 for operand in operands)


def _takes_efficient(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    switches: Any = torch.backends.cuda
    step = _ALIGNED_BYTES // query.element_size()
    is_known = query.dtype in (*_HALF, torch.float32) and _is_regular(query, key, value)
    return (
        switches.mem_efficient_sdp_enabled()
        and is_known
        and query.size(1) == key.size(1)
        and not query.size(-1) % step
        and not value.size(-1) % step
        and _is_read_in_rows(query, key, value, mask)
    )


def _may_be_unfused(query: Tensor) -> bool:
    """Return whether any other kernel may run: cuDNN's, for half precision, or the operators one by one."""
    switches: Any = torch.backends.cuda
    return bool(switches.math_sdp_enabled() or (switches.cudnn_sdp_enabled() and query.dtype in _HALF))


def _unfused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any]
) -> Tensor:
    """Run the operators that CUDA runs where it has no kernel; the CPU would have one for some."""
    if options["dropout_p"] > 0:
        with torch.autocast("cuda", enabled=False):  # it has cast the operands already
            return _unfused_with_dropout(query, key, value, mask, options)
    by_operators: Any = torch._scaled_dot_product_attention_math
    result: Tensor = by_operators(query, key, value, mask, **options)[0]
    return result


def _unfused_with_dropout(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any]
) -> Tensor:
    """Run them one by one, as `_scaled_dot_product_attention_math` (attention.cpp) does in C++.

    There dropout would be the CPU's, whose mask is four times CUDA's.
    """
    dtype, switches = query.dtype, torch.backends.cuda
    if dtype in _HALF and not switches.fp16_bf16_reduction_math_sdp_allowed():  # type: ignore[no-untyped-call]
        query, key, value = query.float(), key.float(), value.float()
        mask = None if mask is None else mask.float()
    if options["is_causal"]:
        size = (query.size(-2), key.size(-2))
        mask = _as_numbers(torch.ones(size, dtype=torch.bool, device=query.device).tril(), query.dtype)
    if options["enable_gqa"]:
        key, value = (each.repeat_interleave(query.size(-3) // each.size(-3), -3) for each in (key, value))
    scale = options["scale"] or query.size(-1) ** -0.5
    root = abs(scale) ** 0.5  # of each, so that their product cannot overflow
    weights = (query * math.copysign(root, scale)) @ (key * root).transpose(-2, -1)
    if mask is not None:
        weights.add_(mask)
    weights = torch._safe_softmax(weights, -1)
    return (dropout(weights, options["dropout_p"], True) @ value).to(dtype)


def _padded(mask: Tensor) -> Tensor:
    """Copy a mask into longer rows if the kernel needs them."""
    columns = mask.size(-1)
    if columns % _MASK_COLUMNS:
        more = -columns % _MASK_COLUMNS
        mask = torch.nn.functional.pad(mask, (0, more))[..., :columns]
    return mask


def _run(
    options: dict[str, Any], query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, ...]:
    dtype = query.dtype
    query, key, value, mask = cast((query, key, value, mask), torch.float16, torch.float32)  # slow on CPUs
    switches: Any = torch.backends.cuda  # they also choose the CPU's kernel; it has no memory-efficient one
    cpu_attends = switches.math_sdp_enabled() or switches.flash_sdp_enabled()
    if cpu_attends and options["dropout_p"] == 0:
        result = _attention(query, key, value, mask, **options)
    else:
        result = _unfused(query, key, value, mask, options)
    return (result.to(dtype).transpose(1, 2).contiguous().transpose(1, 2),)


def _flash(options: dict[str, Any], query: Tensor, key: Tensor, value: Tensor, _: Any) -> tuple[Tensor, ...]:
    operator: Any = _aten._scaled_dot_product_flash_attention.default
    found: tuple[Tensor, ...] = operator(
        query, key, value, options["dropout_p"], options["is_causal"], False, scale=options["scale"]
    )
    return found


def _efficient(
    options: dict[str, Any], query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, ...]:
    operator: Any = _aten._scaled_dot_product_efficient_attention.default
    found: tuple[Tensor, ...] = operator(
        query, key, value, mask, True, options["dropout_p"], options["is_causal"], scale=options["scale"]
    )
    return found


def _like(query: Tensor, _: Tensor, value: Tensor, __: Any) -> tuple[Tensor, ...]:
    batch, heads, rows, _width = query.shape
    shape = (batch, heads, rows, value.size(-1))
    return (torch.empty_permuted(shape, (0, 2, 1, 3), dtype=query.dtype, device=query.device),)


def _kept_and_scratch_bytes(query: Tensor, *, flash: bool) -> tuple[int, int]:
    """Return what CUDA's kernel keeps beside its operands and result, and what its backward pass needs."""
    batch, heads, rows, width = query.shape
    kept = rows if flash else -(-rows // _ROWS) * _ROWS
    scratch = batch * heads * kept  # the dot products of gradient and result, one a row
    if query.dtype in _HALF:
        scratch += batch * heads * rows * width  # the gradient of q, added up in float32
    return batch * heads * kept * 4, scratch * 4


def _rows_first(index: int, operand: Tensor) -> Tensor:
    """Make room for a gradient as the efficient kernel does: of q, k and v with rows before heads."""
    if index > 2:  # the mask
        return torch.empty_like(operand)
    return torch.empty_permuted(operand.shape, (0, 2, 1, 3), dtype=operand.dtype, device=operand.device)
