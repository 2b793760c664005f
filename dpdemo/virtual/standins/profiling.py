"""`torch.profiler` with CUDA's activity: it records the CPU's operators, and no kernels: there are none.

`emit_nvtx` marks operators for NVIDIA's profiler; there is none that could listen, as for `torch.cuda.nvtx`.
"""

from __future__ import annotations

from typing import Any

import torch.autograd.profiler

_profiler: Any = torch.autograd.profiler
_supported: Any = torch.autograd.profiler._supported_activities  # type: ignore[attr-defined]


def supported_activities() -> set[Any]:
    """Stand in for `_supported_activities` of `torch.autograd.profiler`."""
    return {*_supported(), torch.profiler.ProfilerActivity.CUDA}


class EmitNvtx(_profiler.emit_nvtx):  # type: ignore[misc]
    """Stands in for `torch.autograd.profiler.emit_nvtx`, for which C++ wants to have been built with CUDA."""

    entered: bool

    def __enter__(self) -> Any:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("NVTX annotation context manager is not reentrant")
        self.entered = True
        return self

    def __exit__(self, *_: object) -> None:
        """Stop marking."""
