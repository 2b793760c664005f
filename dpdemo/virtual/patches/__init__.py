"""Everything that is replaced in PyTorch while a block is open: what, where and why, as data.

The next PyTorch release is an edit of these tables, a file per mechanism. An attribute that a build does not
have (a CPU build has no `torch._C._scatter`) is added, and taken away again. `applied` puts every attribute
back by identity, whatever happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpdemo.virtual.patches import (
    cuda_build,
    cuda_runtime,
    data_parallel,
    functions,
    gradients,
    tensors,
    tracing,
)

if TYPE_CHECKING:
    from dpdemo.virtual.ops.casting import Autocast
    from dpdemo.virtual.patches.applying import Patch
    from dpdemo.virtual.state import Session


def table(session: Session, autocast: Autocast) -> list[Patch]:
    """Return all patches for `session`, whose threads cast as `autocast` says."""
    scriptable = [*functions.making(), *functions.computing()]
    build = cuda_build.cuda_build()
    unanswered = cuda_runtime.unanswered()  # first: later patches give answers to some of these names
    from dpdemo.virtual import distributed  # here, for it stands above the operators

    return [
        *distributed.patches(),
        *unanswered,
        *cuda_runtime.bound_names([*unanswered, *build]),
        *data_parallel.copies(),
        *cuda_runtime.cuda(session),
        *cuda_runtime.accelerator(),
        *build,
        *cuda_build.tensor_types(),
        *tensors.tensor_methods(),
        *tensors.storage_methods(),
        *tensors.module_methods(),
        *tensors.readers(session),
        *scriptable,
        *functions.naming_devices(),
        *tracing.torchscript(scriptable),
        *tracing.tracers(),
        *gradients.gradients(),
        *gradients.casting(autocast),
        *data_parallel.replica_threads(),
    ]
