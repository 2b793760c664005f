"""Functions that C++ composes from operators which read their operands one by one.

To C++ all tensors are on the CPU, so the check with which they begin is made here; `dispatch.py` checks the
operators of all others.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.applying import wraps
from dpdemo.virtual.errors import two_devices
from dpdemo.virtual.labels import gpu_of

if TYPE_CHECKING:
    from collections.abc import Callable

_WHY = "C++ would compare its devices, which are all the CPU"


@wraps(torch, "quantile", "nanquantile", "meshgrid", why=_WHY)
@wraps(torch.Tensor, "quantile", "nanquantile", why=_WHY)
@wraps(torch.functional, "meshgrid", why=_WHY)
def _on_one_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build a replacement that expects all tensors on the device of the first."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        operands = [*(args[0] if args and isinstance(args[0], (list, tuple)) else args), *kwargs.values()]
        tensors = [each for each in operands if isinstance(each, torch.Tensor)]
        for other in tensors[1:]:
            if gpu_of(other) != gpu_of(tensors[0]):
                raise two_devices(tensors[0].device, other.device)
        return original(*args, **kwargs)

    return call
