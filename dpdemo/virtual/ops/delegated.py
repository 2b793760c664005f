"""Operators that are run by code whose own operators must pass through the mode too.

Custom operators and code registered in Python, composite and higher-order operators, those that only CUDA
has, and operators on lists of tensors over several GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._ops import HigherOrderOperator

from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.labels import as_cpp, gpus_of
from dpdemo.virtual.ops.operands import common_gpu
from dpdemo.virtual.ops.special import special

if TYPE_CHECKING:
    from dpdemo.virtual.ops.special import Action
    from dpdemo.virtual.state import Session

_Key: Any = torch._C.DispatchKey
_has_code: Any = torch._C._dispatch_has_kernel_for_dispatch_key
_FOR_ALL = (
    *("CompositeImplicitAutograd", "CompositeExplicitAutograd"),
    "CompositeExplicitAutogradNonFunctional",
)
_OF_CPU = ("aten::histogram.", "aten::_histogramdd_")
"""PyTorch's own operators that CUDA does not have."""


def delegated(func: Any, run: Action) -> Action | None:
    """Return the action of an operator of one of these kinds, else None; `run` runs an ordinary operator."""
    if isinstance(func, HigherOrderOperator):
        return _run_higher_order
    computes = special(func).on_gpu
    if computes is not None:
        return _on_gpu_by(computes)
    if func._schema.name in OPDEFS:
        return _custom(func, run)
    namespace, _, name = func.name().partition("::")
    registered: set[str] = torch.library._impls
    if f"{namespace}/{name}/CUDA" in registered and not _is_pytorchs_own(name, registered):
        return _on_gpu_by(lambda *args, **kwargs: func._op_dk(_Key.CUDA, *args, **kwargs))
    is_for_cpu = f"{namespace}/{name}/CPU" in registered and namespace != "aten"
    is_for_cpu = is_for_cpu and not any(_has_code(func.name(), key) for key in _FOR_ALL)
    if is_for_cpu or func.name().startswith(_OF_CPU):
        return _refused_on_gpu
    is_composite = (
        torch._C._dispatch_has_kernel(func.name())  # the dispatcher does not know `aten::dim`
        and _has_code(func.name(), "CompositeImplicitAutograd")
        and not _has_code(func.name(), "CPU")
    )
    return as_cpp(_composite(run)) if is_composite else None


def by_code_for(key: Any) -> Action:
    """Return an action that runs an operator's code for a dispatch key: what it is made of passes here."""

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with session.mode(session):
            return func._op_dk(key, *args, **kwargs)

    return act


def _on_gpu_by(function: Any) -> Action:
    """Run an operator by `function` on a GPU, and as PyTorch does on the CPU."""

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if common_gpu(session, func, args, kwargs) is None:
            return func(*args, **kwargs)
        with session.mode(session):
            return function(*args, **kwargs)

    return act


def _custom(func: Any, run: Action) -> Action:
    """Run an operator that was defined with `torch.library.custom_op`."""

    def on_gpu(*args: Any, **kwargs: Any) -> Any:
        functions = OPDEFS[func._schema.name]._backend_fns
        function = functions.get("cuda", functions.get(None))
        if function is None:
            raise UnsupportedOpError(
                f"{func}: it is registered for {sorted(functions)}; code for 'cuda' was expected"
            )
        return function(*args, **kwargs)

    with_numbers = _on_gpu_by(on_gpu)

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # without numbers PyTorch calls the operator's `register_fake`
        return (run if session.is_meta else with_numbers)(session, func, args, kwargs)

    return act


def _is_pytorchs_own(name: str, registered: set[str]) -> bool:
    """Return whether PyTorch itself replaces its code for CUDA where it knows a quicker one (torch/_native).

    Builds with Triton do so for `bmm`. The quicker one is an operator of its own, `_native::bmm_triton_0`; as
    neither it nor the code for CUDA of C++ can run here, the operator takes the CPU's like any other.
    """
    start = f"_native/{name.replace('.', '_')}_"
    return any(key.startswith(start) for key in registered)


def _refused_on_gpu(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if common_gpu(session, func, args, kwargs) is not None:
        raise NotImplementedError(  # PyTorch's words, the first sentences
            f"Could not run '{func.name()}' with arguments from the 'CUDA' backend. This could be because "
            "the operator doesn't exist for this backend, or was omitted during the selective/custom build "
            "process (if using custom build)."
        )
    return func(*args, **kwargs)


def _composite(run: Action) -> Action:
    """Take a composite operator apart. Autograd does so before the mode, except in inference mode."""
    apart = by_code_for(_Key.CompositeImplicitAutograd)

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        is_nested = any(isinstance(arg, torch.Tensor) and arg.is_nested for arg in args)
        return (run if is_nested else apart)(session, func, args, kwargs)  # nested tensors: a kernel for some

    return act


def _run_higher_order(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator that takes functions (`cond`, `flex_attention`) by its parts.

    Raises:
        UnsupportedOpError: PyTorch runs it compiled only.

    """
    kernel = func.py_kernels.get(_Key.CompositeExplicitAutograd) or func.py_kernels.get(_Key.CUDA)
    if kernel is None:
        raise UnsupportedOpError(f"{func}: expected an operator that PyTorch runs without compiling it")
    try:
        with session.mode(session):
            return kernel(*args, **kwargs)
    except AssertionError as refusal:
        if "Mode should never be enabled" not in str(refusal):
            raise
        raise UnsupportedOpError(f"{func}: PyTorch runs it only where no dispatch mode is on") from refusal


def one_by_one_where_mixed(together: Action) -> Action:
    """Run an operator on lists of tensors (`torch._foreach_add`), which optimizers use.

    CUDA goes through tensors on several devices one by one (`can_use_fast_route`, native/ForeachUtils.h):
    each must agree with its own operands alone.
    """

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return together(session, func, args, kwargs)
        except RuntimeError:
            if session.is_meta or len(gpus_of(args[0])) < 2:
                raise
        return by_code_for(_Key.CompositeExplicitAutograd)(session, func, args, kwargs)

    return act
