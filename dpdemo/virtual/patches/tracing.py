"""What looks at a program from outside: TorchScript, compilers, profilers, fake tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from dpdemo.virtual.ops import dispatch, registered
from dpdemo.virtual.patches.applying import Patch, group
from dpdemo.virtual.standins import compiling, flex, profiling, wrappers

if TYPE_CHECKING:
    from collections.abc import Sequence


def torchscript(others: Sequence[Patch]) -> list[Patch]:
    """Let TorchScript know the stand-ins among `others`: it knows PyTorch's functions by identity."""
    known = torch.jit._builtins._get_builtin_table()  # type: ignore[no-untyped-call]
    ops = [(patch, known.get(id(getattr(patch.owner, patch.name)))) for patch in others]
    why = "TorchScript knows functions by identity"
    return [Patch(known, id(patch.value), op, why) for patch, op in ops if op is not None]


def tracers() -> list[Patch]:
    """Let tracers and profilers work without CUDA's own parts in C++."""
    return [
        *group(torch, "its tracing does not see through a dispatch mode", compile=compiling.compile),
        *group(
            flex.MODULE,
            "it would trace on a GPU, for which C++ has no threads",
            create_fw_bw_graph=flex.create_graphs,
        ),
        *group(
            FakeTensorMode,
            "it would compute what it knows on the GPU itself, which C++ does not have",
            avoid_device_init=property(wrappers.avoid_device_init),
        ),
        *group(
            fake_tensor,
            "PyTorch 2.11 would make a context of CUDA for each",
            init_gpu_context=wrappers.init_gpu_context,
        ),
        *group(
            torch.autograd.profiler,
            "without CUDA's activity it falls back on events of C++, which complain about each operator",
            _supported_activities=profiling.supported_activities,
            emit_nvtx=profiling.EmitNvtx,
        ),
        *group(
            torch.autograd,
            "torch.profiler asks it too",
            _supported_activities=profiling.supported_activities,
        ),
        *_registrations(),
    ]


def _registrations() -> list[Patch]:
    library: Any = torch.library.Library
    return group(
        library,
        "an operator that got code for CUDA takes another way from then on",
        impl=registered.forgetting_choices(library.impl, dispatch.actions),
        _destroy=registered.forgetting_choices(library._destroy, dispatch.actions),
    )
