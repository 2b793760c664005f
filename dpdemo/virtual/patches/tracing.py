"""What looks at a program from outside: TorchScript, compilers, profilers, fake tensors, dispatch rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._library import simple_registry
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from dpdemo.virtual.ops import dispatch, registered
from dpdemo.virtual.patches.applying import Patch, group
from dpdemo.virtual.standins import compiling, flex, profiling, scripting, wrappers

if TYPE_CHECKING:
    from collections.abc import Sequence

_C: Any = torch._C


def torchscript(others: Sequence[Patch]) -> list[Patch]:
    """Let TorchScript know the stand-ins among `others`: it knows PyTorch's functions by identity."""
    known = torch.jit._builtins._get_builtin_table()  # type: ignore[no-untyped-call]
    saving: Any = torch.jit.RecursiveScriptModule, torch.jit.ScriptFunction  # type: ignore[attr-defined]
    ops = [(patch, known.get(id(getattr(patch.owner, patch.name)))) for patch in others]
    why = "TorchScript knows functions by identity"
    asks = "its interpreter asks C++ where a tensor is"
    create = scripting.creating(torch.jit._recursive.create_script_module_impl)
    return [
        *[Patch(known, id(patch.value), op, why) for patch, op in ops if op is not None],
        *group(_C, asks, _jit_script_compile=scripting.compiling(_C._jit_script_compile)),
        *group(torch.jit._recursive, asks, create_script_module_impl=create),
        *[
            Patch(owner, "load", scripting.loading(owner.load), asks)
            for owner in (torch.jit, torch.jit._serialization)
        ],
        *[
            Patch(owner, name, scripting.saving(getattr(owner, name)), "any PyTorch must load the file")
            for owner in saving
            for name in ("save", "save_to_buffer")
        ],
    ]


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
        *group(
            simple_registry,
            "C++ asks with every operator whether it has a rule for our mode; it has none",
            find_torch_dispatch_rule=dispatch.find_rule,
        ),
    ]


def _registrations() -> list[Patch]:
    library: Any = torch.library.Library
    return group(
        library,
        "an operator that got code for CUDA takes another way from then on",
        impl=registered.forgetting_choices(library.impl, dispatch.actions),
        _destroy=registered.forgetting_choices(library._destroy, dispatch.actions),
    )
