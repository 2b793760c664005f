"""Everything that is replaced in PyTorch while a block is open.

A replacement is declared beside its function, with its name and reason (`@stands_in`), here and in
`ops/`; the next PyTorch release is an edit of these. `applied` puts every attribute back by identity,
whatever happens.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from dpdemo.virtual import kinds  # noqa: F401 - it registers
from dpdemo.virtual.applying import OF_SESSION, REGISTERED, Patch
from dpdemo.virtual.ops import (  # noqa: F401 - they register
    attention,
    casting,
    cuda_only,
    meta,
    recurrent,
    single_kernels,
)
from dpdemo.virtual.patches import (  # noqa: F401 - they register their replacements
    autograd,
    comm,
    composites,
    cuda_build,
    cuda_devices,
    cuda_memory,
    factories,
    generators,
    indexing,
    legacy,
    names,
    reducing,
    replicas,
    storages,
    streams,
    tensor,
    tracers,
    warned,
    wrappers,
)

if dist.is_available() and dist.is_gloo_available():
    from dpdemo.virtual import distributed  # noqa: F401 - it registers

if TYPE_CHECKING:
    from dpdemo.virtual.state import Session

_C: Any = torch._C


def table(session: Session) -> list[Patch]:
    """Return all patches for `session`."""
    patches = [*cuda_build.refused_questions(), *REGISTERED]
    return [
        *_bound_names(patches),  # first: a later patch of the same name wins
        *patches,
        *[patch for make in OF_SESSION for patch in make(session)],
        *_known_to_torchscript(patches),
    ]


def _bound_names(patches: list[Patch]) -> list[Patch]:
    """Replace functions of `torch._C` also where a module of `torch.cuda` took them over at its import."""
    replaced = {
        id(vars(_C)[patch.name]): patch.value
        for patch in patches
        if patch.owner is _C and patch.name in vars(_C)
    }
    modules = [
        module for name, module in sys.modules.items() if name.startswith(("torch.cuda", "torch.accel"))
    ]
    return [
        Patch(module, name, replaced[id(value)], "it was taken over from torch._C when this was imported")
        for module in modules
        for name, value in vars(module).items()
        if id(value) in replaced
    ]


def _known_to_torchscript(patches: list[Patch]) -> list[Patch]:
    """Let TorchScript know the replacements of PyTorch's functions, which it knows by identity."""
    known = torch.jit._builtins._get_builtin_table()  # type: ignore[no-untyped-call]
    ops = [
        (patch, known.get(id(getattr(patch.owner, patch.name, None))))
        for patch in patches
        if isinstance(patch.name, str)
    ]
    why = "TorchScript knows functions by identity"
    return [Patch(known, id(patch.value), op, why) for patch, op in ops if op is not None]
