"""Every operator passes here: find the one GPU its operands are on, run it on the CPU, label what came out.

One `VirtualGpuMode` a thread (PyTorch's dispatch modes are thread-local; `threads.py` enters one in each new
thread). A mode is called below autograd and autocast with the operators that remain when composite ones are
taken apart, in the forward pass and in the backward pass alike. What an operator needs beyond the rule above
stands in `rules.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._library.custom_ops import OPDEFS
from torch.utils._python_dispatch import TorchDispatchMode

from dpdemo.virtual import numberless
from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.labels import label_of, stamp, stamp_all
from dpdemo.virtual.mismatch import check_strangers, device_clash
from dpdemo.virtual.random import is_random, run_random
from dpdemo.virtual.rules import RULES
from dpdemo.virtual.state import gpu_index
from dpdemo.virtual.widening import run_wider

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpdemo.virtual.state import Session

_CPU = torch.device("cpu")
_Tensor = torch.Tensor
_actions: dict[Any, Any] = {}  # what each operator met so far takes


class VirtualGpuMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs one thread's operators on virtual GPUs."""

    def __init__(self, session: Session) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.session = session

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep PyTorch from importing torch._dynamo (about a second) at the first operator."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        try:
            action = _actions[func]
        except KeyError:
            action = _actions[func] = RULES.get(func) or _kind(func)
        return action(self.session, func, args, kwargs or {})


def run(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `func` on the GPU that its operands share, or on the CPU if none is on a GPU.

    Raises:
        RuntimeError: the operands are on two devices; PyTorch's own words.

    """
    if "device" in kwargs:
        return _run_factory(session, func, args, kwargs)
    index = common_gpu(session, func, args, kwargs)
    return _execute(session, func, args, kwargs, index)


def _execute(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None
) -> Any:
    """Run `func` on GPU `index`, or on the CPU if that is None, and label what comes out."""
    try:
        if session.is_meta:
            result = numberless.run(session, func, args, kwargs, index)
        elif is_random(func):
            result = run_random(session, func, args, kwargs, index)
        else:
            result = func(*args, **kwargs) if kwargs else func(*args)
    except RuntimeError as refusal:
        if index is None or session.is_meta:
            raise
        result = run_wider(func, args, kwargs, refusal)
    if index is not None:
        if type(result) is _Tensor:
            stamp(result, session, index)
        else:
            stamp_all(result, session, index)
    return result


def common_gpu(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Return the GPU of all operands, or None if all are on the CPU."""
    index, strangers = _survey(session, func, args, kwargs)
    if strangers and index is not None:
        # Only now: while `_survey` runs, its own variables would count as references to the operands.
        check_strangers(session, func, args, kwargs)
    return index


def _survey(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[int | None, bool]:
    """Return the GPU of the operands that are on one, and whether any is on the CPU.

    This loop is the cost of an operator: it is written out, and everything rare is left to `mismatch.py`.
    """
    key = session.key
    index = None
    strangers = False
    for arg in (*args, *kwargs.values()) if kwargs else args:
        kind = type(arg)
        if kind is _Tensor or isinstance(arg, _Tensor):
            operands: Any = (arg,)
        elif kind is list or kind is tuple:
            operands = arg
        else:
            continue
        for operand in operands:
            if not isinstance(operand, _Tensor):
                continue
            label = label_of(operand, key)
            if label is None:
                strangers = True
            elif index is None:
                index = label.index
            elif index != label.index:
                raise device_clash(session, func, args, kwargs)
    return index, strangers


def _run_factory(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator that was told where to put its result, such as `empty` or `zeros_like`.

    C++ itself says "the CPU" when it means "where this tensor is" (`empty_strided(..., grad.options())`). So
    beside operands on a GPU the CPU means that GPU; a user's own `device="cpu"` is seen to in `factories.py`.
    """
    device = kwargs["device"]
    if device is None or device.type == "cpu":
        index = common_gpu(session, func, args, kwargs)
    else:
        index = gpu_index(device)
        if index is not None:
            kwargs["device"] = _CPU
    kwargs.pop("pin_memory", None)  # pinning needs a CUDA runtime; `tensor.py` keeps the flag
    return _execute(session, func, args, kwargs, index)


def _kind(func: Any) -> Any:
    """Choose what an operator without a rule takes."""
    if is_custom(func):
        return run_custom
    return run_parts if _is_composite(func.name()) else run


def _is_composite(name: str) -> bool:
    """Tell whether an operator is only made of others (`aten::dim` the dispatcher does not know)."""
    has: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    known = torch._C._dispatch_has_kernel(name)
    return known and has(name, "CompositeImplicitAutograd") and not has(name, "CPU")


def run_parts(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take a composite operator apart. Autograd does so before we are called, except in inference mode."""
    with VirtualGpuMode(session):
        return func.decompose(*args, **kwargs)


def is_custom(func: Any) -> bool:
    """Tell whether `func` was defined in Python with `torch.library.custom_op`."""
    return func._schema.name in OPDEFS


def run_custom(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a custom operator's Python code with the GPUs in sight: its own operators must pass here too.

    Raises:
        UnsupportedOpError: it has no code for CUDA devices.

    """
    if session.is_meta:  # then it is the operator's `register_fake` that is asked
        return run(session, func, args, kwargs)
    if common_gpu(session, func, args, kwargs) is None:
        return func(*args, **kwargs)
    functions = OPDEFS[func._schema.name]._backend_fns
    function = functions.get("cuda", functions.get(None))
    if function is None:
        raise UnsupportedOpError(
            f"{func}: it is registered for {sorted(functions)}; code for 'cuda' was expected"
        )
    with VirtualGpuMode(session):
        return function(*args, **kwargs)
