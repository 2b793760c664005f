"""Operators whose code for CUDA, or for the CPU alone, was written in Python (`torch.library.Library.impl`).

C++ sees operands on the CPU and would take the CPU's code. PyTorch keeps the keys of what Python registered
in `torch.library._impls`; the code for CUDA it finds itself when it is asked for that key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import no_code_for_cuda
from dpdemo.virtual.ops.placing import common_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.virtual.state import Session

    Action = Callable[[Session, Any, tuple[Any, ...], dict[str, Any]], Any]

_CUDA = torch._C.DispatchKey.CUDA
_FOR_ALL = (
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)
_has_code: Any = torch._C._dispatch_has_kernel_for_dispatch_key


def by_registration(func: Any, seen: Any) -> Action | None:
    """Return what an operator takes that Python has given code for CUDA, or for the CPU alone; else None.

    `seen` makes the context in which code written in Python runs, so that its operators are seen.
    """
    namespace, _, name = func.name().partition("::")
    registered: set[str] = torch.library._impls
    if f"{namespace}/{name}/CUDA" in registered and not _is_pytorchs_own(name, registered):
        return _run_cudas(seen)
    is_cpus = f"{namespace}/{name}/CPU" in registered and namespace != "aten"
    return None if not is_cpus or any(_has_code(func.name(), key) for key in _FOR_ALL) else _refuse_on_gpu


def _is_pytorchs_own(name: str, registered: set[str]) -> bool:
    """Return whether PyTorch itself replaces its code for CUDA where it knows a quicker one (torch/_native).

    Builds with Triton do so for `bmm`. The quicker one is an operator of its own, `_native::bmm_triton_0`; as
    neither it nor the code for CUDA of C++ can run here, the operator takes the CPU's like any other.
    """
    start = f"_native/{name.replace('.', '_')}_"
    return any(key.startswith(start) for key in registered)


def _run_cudas(seen: Any) -> Action:
    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if common_gpu(session, func, args, kwargs) is None:
            return func(*args, **kwargs)
        with seen(session):
            return func._op_dk(_CUDA, *args, **kwargs)

    return act


def _refuse_on_gpu(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if common_gpu(session, func, args, kwargs) is not None:
        raise no_code_for_cuda(func.name())
    return func(*args, **kwargs)
