"""Gradients, and casting under autocast: C++ would go by its own devices, which are all the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import BackwardCFunction

from dpdemo.virtual.patches.applying import Attribute, Patch, group
from dpdemo.virtual.standins import autograd, grouping

if TYPE_CHECKING:
    from dpdemo.virtual.ops.casting import Autocast

_C: Any = torch._C


def gradients() -> list[Patch]:
    """Let gradients be where their tensors are."""
    boxed = {"apply_boxed": autograd.backward_boxed} if hasattr(BackwardCFunction, "apply_boxed") else {}
    return [
        *group(
            torch.autograd.Function,
            "C++ makes gradients of zeros on the CPU; this notes where the outputs are",
            apply=classmethod(autograd.apply),
        ),
        *group(
            torch.Tensor,
            "the same for gradients that C++ makes of nothing",
            grad=Attribute(autograd.get_grad, autograd.set_grad, autograd.del_grad),
        ),
        *group(torch._VF, "and for tangents", _unpack_dual=autograd.unpack_dual),
        *group(torch._functorch.predispatch, "and for tangents", _unpack_dual_impl=autograd.unpack_dual),
        *group(torch.autograd, "and for those of autograd.grad", _engine_run_backward=autograd.run_engine),
        *group(BackwardCFunction, "and this labels them accordingly", apply=autograd.backward),
        *group(BackwardCFunction, "since 2.15", **boxed),
        *group(
            _C,
            "C++ would put tensors of all GPUs into one group",
            _group_tensors_by_device_and_dtype=grouping.group_by_device_and_dtype,
        ),
    ]


def casting(autocast: Autocast) -> list[Patch]:
    """Let this block's `autocast` answer for CUDA."""
    return group(
        torch,
        "C++ would cast by its own devices",
        set_autocast_enabled=autocast.set_enabled,
        clear_autocast_cache=autocast.clear_cache,
    )
