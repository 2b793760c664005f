"""Operators whose kernels say in words of their own that their operands are on two devices.

Each entry takes the operands, as names, devices and tensors in order, and builds the error; or returns None
where the common words are right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import convolution_types

if TYPE_CHECKING:
    from collections.abc import Callable

    Operand = tuple[str, torch.device, torch.Tensor]
    Words = Callable[[list[Operand]], RuntimeError | None]

_aten: Any = torch.ops.aten


def _convolution(found: list[Operand]) -> RuntimeError | None:
    """`check_input_same_type_as_parameters` (native/Convolution.cpp), which compares types first."""
    (_, home, data), *others = found
    for kind, device, other in others:
        if device != home and (device.type, home.type) != ("cuda", "cuda"):
            return convolution_types(data.type(), kind, other.type(), or_mkldnn=home.type == "cpu")
    return None


def _masked_fill(found: list[Operand]) -> RuntimeError | None:
    """`masked_fill__cuda` (native/cuda/Indexing.cu)."""
    devices = {name: device for name, device, _ in found}
    if devices["mask"] == devices["self"]:
        return None
    return RuntimeError(
        "expected self and mask to be on the same device, "
        f"but got mask on {devices['mask']} and self on {devices['self']}"
    )


def _grid_sampler(found: list[Operand]) -> RuntimeError:
    """`check_grid_sampler_common` (native/GridSamplerUtils.h)."""
    (_, home, _), (_, there, _) = found[:2]
    return RuntimeError(
        "grid_sampler(): expected input and grid to be on same device, "
        f"but input is on {home} and grid is on {there}"
    )


WORDS: dict[Any, Words] = {
    _aten.convolution.default: _convolution,
    _aten.grid_sampler_2d.default: _grid_sampler,
    _aten.grid_sampler_3d.default: _grid_sampler,
    **dict.fromkeys(
        (
            _aten.masked_fill.Scalar,
            _aten.masked_fill.Tensor,
            _aten.masked_fill_.Scalar,
            _aten.masked_fill_.Tensor,
        ),
        _masked_fill,
    ),
}
