"""Every operator passes here: find the one GPU its operands are on, run it on the CPU, label what came out.

One `VirtualGpuMode` per thread (PyTorch's dispatch modes are thread-local; `threads.py` enters one in each
new thread). A mode is called below autograd and autocast with the operators that remain when composite ones
are taken apart, in the forward pass and in the backward pass alike. What an operator needs beyond the rule
above stands in `rules.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from dpdemo.virtual.blocks import Kind
from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.labels import label_of, stamp, stamp_all
from dpdemo.virtual.ledger import Allocation
from dpdemo.virtual.ops import collectives, meta
from dpdemo.virtual.ops.cuda_only import COMPUTED
from dpdemo.virtual.ops.direct import DIRECT
from dpdemo.virtual.ops.known import META
from dpdemo.virtual.ops.lists import is_on_lists, one_by_one_where_mixed
from dpdemo.virtual.ops.mismatch import check_cpu_operands, device_clash, takes_numbers
from dpdemo.virtual.ops.placing import WITHOUT_STORAGE, common_gpu, place, survey
from dpdemo.virtual.ops.provenance import made_by_cpp, note_cpps
from dpdemo.virtual.ops.random import is_random, run_random
from dpdemo.virtual.ops.refusals import with_refusals
from dpdemo.virtual.ops.registered import by_registration
from dpdemo.virtual.ops.rules import RULES
from dpdemo.virtual.ops.scratch import CONVOLUTIONS, scratch_bytes
from dpdemo.virtual.ops.widening import is_slow_on_cpu, run_cast, run_wider
from dpdemo.virtual.state import gpu_index
from dpdemo.virtual.transfer import has_operators_of_its_own

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpdemo.virtual.state import Session

_CPU = torch.device("cpu")
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_AS_WRITTEN = torch._C.DispatchKey.CompositeExplicitAutograd
_ON_CUDA = torch._C.DispatchKey.CUDA
_FAKING = (torch._C._TorchDispatchModeKey.FAKE, torch._C._TorchDispatchModeKey.FUNCTIONAL)
_Tensor = torch.Tensor
_strided = torch.strided
_has_own_functions: Any = torch._C._has_torch_function_unary
_RESIZING = ("aten::resize_", "aten::resize_as_", "aten::resize_as_sparse_", "aten::set_")
_num_modes_below: Any = torch._C._len_torch_dispatch_stack
# What each operator met so far takes, by its `id` (an operator's own hash is a function in Python); the
# operator is kept with it, so that no other one gets its `id`.
actions: dict[int, tuple[Any, Any]] = {}


class VirtualGpuMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs one thread's operators on virtual GPUs."""

    supports_higher_order_operators = True

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
        if types or _num_modes_below():
            if _is_faked():
                return func(*args, **(kwargs or {}))
            if any(map(has_operators_of_its_own, types)):
                return NotImplemented  # a subclass with operators of its own: its parts pass here
        try:
            action = actions[id(func)][1]
        except KeyError:
            action = _action_of(func)
            actions[id(func)] = func, action
        return action(self.session, func, args, kwargs or {})


def _is_faked() -> bool:
    """Return whether a mode of PyTorch's below this one makes up tensors and devices (FakeTensorMode)."""
    return any(torch._C._get_dispatch_mode(key) is not None for key in _FAKING)


def run(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `func` on the GPU that its operands share, or on the CPU if none is on a GPU.

    Raises:
        RuntimeError: the operands are on two devices; PyTorch's own words.

    """
    if "device" in kwargs:
        return _run_factory(session, func, args, kwargs)
    index, is_cpps = place(session, func, args, kwargs)
    result = _execute(session, func, args, kwargs, index)
    if is_cpps:
        note_cpps(session, result)
    return result


def _usual(func: Any) -> Any:  # noqa: C901, PLR0915 - see below
    """Build what most operators take: `run`, with everything looked up that is known beforehand.

    Half of what an operator costs is spent here: so `survey` is written out for the usual case.
    """
    op = DIRECT.get(func, func._op)
    makes_new = not func.is_view and not _keeps_storage(func)
    tolerated = int(takes_numbers(func))
    arguments = func._schema.arguments
    is_plain = not any("[]" in str(spec.type) or "List[Tensor" in str(spec.type) for spec in arguments)
    has_named_tensors = any(spec.kwarg_only and "Tensor" in str(spec.type) for spec in arguments)

    def act(  # noqa: C901, PLR0912 - written out
        session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if session.is_meta:
            return run(session, func, args, kwargs)
        index, cpu_operands, has_users = None, 0, False
        if is_plain and not (kwargs and has_named_tensors):
            key, host_key = session.key, session.host_key
            for arg in args:
                if isinstance(arg, _Tensor):
                    if _has_own_functions(arg):  # its class, or a function mode, would see the questions
                        with torch._C.DisableTorchFunction():
                            return act(session, func, args, kwargs)
                    try:
                        attributes = arg.untyped_storage().__dict__
                        label = attributes.get(key)
                        has_users = has_users or host_key not in attributes
                    except WITHOUT_STORAGE:
                        label = label_of(arg, key)
                    if label is None:
                        cpu_operands |= 2 if arg.dim() else 1
                    elif index is None:
                        index = label.index
                    elif index != label.index:
                        raise device_clash(session, func, args, kwargs)
            arg = None  # it would count as a reference to the last operand
        else:
            if not torch._C._is_torch_function_all_disabled():
                with torch._C.DisableTorchFunction():
                    return act(session, func, args, kwargs)
            index, cpu_operands = survey(session, func, args, kwargs)
        if index is None:
            if has_users or not cpu_operands:
                return op(*args, **kwargs)
            is_cpps = all(made_by_cpp(session, args, kwargs))
            result = op(*args, **kwargs)
            if is_cpps:
                note_cpps(session, result)
            return result
        if cpu_operands > tolerated:
            check_cpu_operands(session, func, args, kwargs)
        try:
            result = op(*args, **kwargs) if kwargs else op(*args)
        except RuntimeError as refusal:
            result = run_wider(func, args, kwargs, refusal)
        if type(result) is not _Tensor:
            stamp_all(result, session, index)
        elif result.layout is not _strided:  # sparse ones get other parts
            stamp(result, session, index)
        elif makes_new or cpu_operands:  # as `stamp` does, written out
            storage = result.untyped_storage()
            attributes = storage.__dict__
            if session.key in attributes or session.num_uncounted:
                stamp(result, session, index)
            else:
                attributes[session.key] = Allocation(session.ledger, index, storage.nbytes())
        return result

    return act


def _keeps_storage(func: Any) -> bool:
    """Return whether the result is the first operand, written into: its storage has its label."""
    returns = func._schema.returns
    written = len(returns) == 1 and returns[0].alias_info is not None and returns[0].alias_info.is_write
    return bool(written and func._schema.name.endswith("_") and func._schema.name not in _RESIZING)


def _execute(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None
) -> Any:
    """Run `func` on GPU `index`, or on the CPU if that is None, and label what comes out."""
    try:
        if session.is_meta:
            result = meta.run(session, func, args, kwargs, index)
        elif is_random(func):
            result = run_random(session, func, args, kwargs, index)
        elif index is not None and is_slow_on_cpu(func, args):
            result = run_cast(func, args, kwargs, torch.float16, torch.float32)
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


def _run_factory(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator that was told where to put its result, such as `empty` or `zeros_like`.

    C++ itself says "the CPU" (without numbers: "meta") when it means "where this tensor is", as in
    `empty_strided(..., grad.options())`. So beside operands on a GPU the CPU means that GPU; a user's own
    `device="cpu"` is seen to in `factories.py`.
    """
    device = kwargs["device"]
    if device is None or device.type == "cpu" or (session.is_meta and device == META):
        index, is_cpps = place(session, func, args, kwargs)
    else:
        index, is_cpps = gpu_index(device), False
        if index is not None:
            kwargs["device"] = _CPU
    kwargs.pop("pin_memory", None)  # pinning needs a CUDA runtime; `tensor.py` keeps the flag
    result = _execute(session, func, args, kwargs, index)
    if is_cpps:
        note_cpps(session, result)
    return result


def _action_of(func: Any) -> Any:
    """Choose what an operator takes."""
    if isinstance(func, HigherOrderOperator):
        return run_higher_order
    if func in COMPUTED:
        return run_computed
    return with_refusals(func, _as_cpp(RULES[func]) if func in RULES else _kind(func))


def _as_cpp(action: Any) -> Any:
    """Let what an operator takes read its operands as C++ does, past their classes and function modes."""

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch._C.DisableTorchFunction():
            return action(session, func, args, kwargs)

    return act


def _kind(func: Any) -> Any:  # noqa: PLR0911 - a return for each kind
    """Choose what an operator without a rule takes."""
    if func.namespace == "c10d":
        return collectives.action(run)
    if is_custom(func):
        return run_custom
    if (registered := by_registration(func, VirtualGpuMode)) is not None:
        return registered
    if func in CONVOLUTIONS:
        return _as_cpp(run_with_scratch)
    if _is_composite(func.name()):
        return _as_cpp(run_parts)
    takes_device = any(spec.name == "device" for spec in func._schema.arguments)
    if takes_device or is_random(func):
        return _as_cpp(run)
    usual = _usual(func)
    return one_by_one_where_mixed(usual, VirtualGpuMode) if is_on_lists(func) else usual


def run_with_scratch(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a convolution, and count what cuDNN takes meanwhile, if that is asked for."""
    result = run(session, func, args, kwargs)
    label = label_of(args[0], session.key)
    if session.scratch_capability is not None and label is not None:
        nbytes = scratch_bytes(func, args, result, session.scratch_capability)
        Allocation(session.ledger, label.index, nbytes, Kind.SCRATCH)
    return result


def _is_composite(name: str) -> bool:
    """Return whether an operator is only made of others (the dispatcher does not know `aten::dim`)."""
    has: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    known = torch._C._dispatch_has_kernel(name)
    return known and has(name, "CompositeImplicitAutograd") and not has(name, "CPU")


def run_parts(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take a composite operator apart. Autograd does so before we are called, except in inference mode."""
    if any(isinstance(arg, _Tensor) and arg.is_nested for arg in args):
        return run(session, func, args, kwargs)  # nested tensors have a kernel for some
    with VirtualGpuMode(session):
        return func._op_dk(_COMPOSITE, *args, **kwargs)


def run_higher_order(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator that takes functions (`cond`, `flex_attention`): by its parts, which pass here.

    Raises:
        UnsupportedOpError: PyTorch runs it compiled only.

    """
    kernel = func.py_kernels.get(_AS_WRITTEN) or func.py_kernels.get(_ON_CUDA)
    if kernel is None:
        raise UnsupportedOpError(f"{func}: expected an operator that PyTorch runs without compiling it")
    try:
        with VirtualGpuMode(session):
            return kernel(*args, **kwargs)
    except AssertionError as refusal:
        if "Mode should never be enabled" not in str(refusal):
            raise
        raise UnsupportedOpError(f"{func}: PyTorch runs it only where no dispatch mode is on") from refusal


def run_computed(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator that only CUDA's build has, by others."""
    if common_gpu(session, func, args, kwargs) is None:
        return func(*args, **kwargs)
    with VirtualGpuMode(session):
        return COMPUTED[func](*args, **kwargs)


def is_custom(func: Any) -> bool:
    """Return whether `func` was defined in Python with `torch.library.custom_op`."""
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
