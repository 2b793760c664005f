"""Operators that CUDA has for a narrow dtype and the CPU has not: run in a wider one, and round the result.

There are few (`histc` of integers, `avg_pool3d` of float16, some of complex32), and which they are changes
with every release. So the CPU's own refusal is what tells: "... not implemented for 'Half'".
"""

from __future__ import annotations

import re
from typing import Any

import torch

from dpdemo.virtual.errors import UnsupportedOpError

# The names of C++'s errors, with the dtype and the one to compute in.
_NAMES = {
    "Half": (torch.float16, torch.float32),
    "BFloat16": (torch.bfloat16, torch.float32),
    "ComplexHalf": (torch.complex32, torch.complex64),
    "Byte": (torch.uint8, torch.float64),
    "Char": (torch.int8, torch.float64),
    "Short": (torch.int16, torch.float64),
    "Int": (torch.int32, torch.float64),
    "Long": (torch.int64, torch.float64),
}
_REFUSAL = re.compile(r"(?:not implemented for '|Unsupported dtype )(\w+)")


def _cast(value: Any, source: torch.dtype, target: torch.dtype) -> Any:
    """Cast the tensors of dtype `source`, and that dtype itself, in an operator's arguments or results."""
    if isinstance(value, (list, tuple)):
        return type(value)([_cast(item, source, target) for item in value])
    if isinstance(value, torch.Tensor):
        return value.to(target) if value.dtype == source else value
    return target if value is source else value


def run_wider(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], refusal: RuntimeError) -> Any:
    """Run `func`, which the CPU refused, in a wider dtype.

    Raises:
        UnsupportedOpError: it was refused for another reason, or wider too.

    """
    name = _REFUSAL.search(str(refusal))
    if name is None:
        raise refusal
    if name[1] not in _NAMES or func._schema.is_mutable:
        raise UnsupportedOpError(f"{func}: {refusal}") from refusal
    narrow, wide = _NAMES[name[1]]
    try:
        result = func(
            *_cast(args, narrow, wide), **{key: _cast(item, narrow, wide) for key, item in kwargs.items()}
        )
    except RuntimeError as again:
        raise UnsupportedOpError(f"{func}: {refusal}") from again
    return _cast(result, wide, narrow)
