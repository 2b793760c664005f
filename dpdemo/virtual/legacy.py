"""`torch.cuda.FloatTensor` and its like: old names that make tensors on the current GPU, and know them."""

from __future__ import annotations

from typing import Any

import torch

DTYPES = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}


class _LegacyType(type):
    dtype: torch.dtype

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype

    def __call__(cls, *args: Any) -> torch.Tensor:
        """Make a tensor from data, or an uninitialised one of a given size."""
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.tensor(args[0], dtype=cls.dtype, device="cuda")
        return torch.empty(*(args or (0,)), dtype=cls.dtype, device="cuda")


def tensor_types() -> dict[str, type]:
    """Make the types, by name."""
    return {
        name: _LegacyType(name, (), {"__module__": "torch.cuda", "dtype": dtype})
        for name, dtype in DTYPES.items()
    }
