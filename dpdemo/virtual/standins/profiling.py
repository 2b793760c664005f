"""`torch.profiler` with CUDA's activity: it records the CPU's operators, and no kernels: there are none."""

from __future__ import annotations

from typing import Any

import torch.autograd.profiler

_supported: Any = torch.autograd.profiler._supported_activities  # type: ignore[attr-defined]


def supported_activities() -> set[Any]:
    """Stand in for `_supported_activities` of `torch.autograd.profiler`."""
    return {*_supported(), torch.profiler.ProfilerActivity.CUDA}
