"""The action of an operator: find the GPU of its operands, run it on the CPU, label the results.

Operators that need more have a rule in `rules.py`; `mode.py` calls the action that is chosen here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.blocks import Kind
from dpdemo.virtual.labels import as_cpp, label_of, stamp, stamp_all
from dpdemo.virtual.ledger import Allocation
from dpdemo.virtual.ops import cuda_only, memo, meta, rules, shapes, sync_batch_norm  # noqa: F401 - they register
from dpdemo.virtual.ops.accumulating import ADD, ADD_IN_PLACE, accumulating
from dpdemo.virtual.ops.collectives import FUNCTIONAL
from dpdemo.virtual.ops.delegated import delegated, one_by_one_where_mixed
from dpdemo.virtual.ops.direct import DIRECT
from dpdemo.virtual.ops.known import META
from dpdemo.virtual.ops.mismatch import compares_all
from dpdemo.virtual.ops.operands import NUMBER, USERS, check_cpu_operands, place, survey
from dpdemo.virtual.ops.provenance import made_by_cpp, note_cpps, note_hosts
from dpdemo.virtual.ops.random import is_random, run_random
from dpdemo.virtual.ops.scratch import CONVOLUTIONS, scratch_bytes
from dpdemo.virtual.ops.special import special
from dpdemo.virtual.ops.widening import in_float32, run_wider, with_refusals
from dpdemo.virtual.state import Session, gpu_index

if TYPE_CHECKING:
    from dpdemo.virtual.ops.special import Action

_CPU = torch.device("cpu")
_Tensor = torch.Tensor
_strided = torch.strided
_COPY = torch.ops.aten.copy_.default
_RESIZING = ("aten::resize_", "aten::resize_as_", "aten::resize_as_sparse_", "aten::set_")


def choose(func: Any) -> Action:
    """Choose the action of an operator."""
    found: Action | None = delegated(func, run)
    if found is not None and not hasattr(func, "_schema"):
        return found  # a higher-order operator
    if func.namespace == "c10d" or func.namespace in FUNCTIONAL:
        from dpdemo.virtual.ops import c10d  # some builds lack torch.distributed

        found = c10d.action(func, run) if func.namespace == "c10d" else c10d.run_functional
    rule = special(func).run
    if rule is not None:
        found = as_cpp(rule)
        if func is _COPY:
            found = _copying_within_a_gpu(found)
    elif found is None and func in CONVOLUTIONS:
        found = as_cpp(_run_with_scratch)
    elif found is None and (is_random(func) or any(spec.name == "device" for spec in func._schema.arguments)):
        found = as_cpp(memo.remembering(func, run))
    action: Action = with_refusals(func, _usual(func) if found is None else found)
    return accumulating(action, choose(ADD_IN_PLACE)) if func is ADD else action


def run(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `func` on the GPU that its operands share, or on the CPU if none is on a GPU.

    An operator may be told where to put its result, such as `empty` or `zeros_like`. C++ itself says "the
    CPU" (without numbers: "meta") when it means "where this tensor is", as in `empty_strided(...,
    grad.options())`. So beside operands on a GPU the CPU means that GPU; `factories.py` handles a user's own
    `device="cpu"`.

    Raises:
        RuntimeError: the operands are on two devices; PyTorch's own words.

    """
    device = kwargs.get("device")
    if device is None or device.type == "cpu" or (session.is_meta and device == META):
        index, is_cpps = place(session, func, args, kwargs)
        if index is None and session.current.makes_buckets:
            return _make_bucket(session, func, args, kwargs)
    else:
        index, is_cpps = gpu_index(device), False
        if index is not None:
            kwargs["device"] = _CPU
    if "device" in kwargs:
        kwargs.pop("pin_memory", None)  # pinning needs a CUDA runtime; `tensor.py` keeps the flag
    result = _execute(session, func, args, kwargs, index)
    if is_cpps:
        note_cpps(session, result)
    return result


def _make_bucket(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator of the reducer: its new buckets, which no operand places, are on the current GPU.

    Its tables of indices are on the host; C++ names no device for them, and the parameters' for buckets.
    """
    if func is not torch.ops.aten.empty.memory_format or "device" not in kwargs:
        result = _execute(session, func, args, kwargs, None)
        note_hosts(session, result)  # also if they are filled from a GPU
        return result
    kwargs.pop("pin_memory", None)
    result = _execute(session, func, args, kwargs, session.current.index)
    label = label_of(result, session.key)
    if label is not None:
        label.mark(Kind.BUCKET)
    return result


def _execute(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None
) -> Any:
    """Run `func` on GPU `index`, or on the CPU if that is None, and label the results."""
    try:
        if session.is_meta:
            result = meta.run(session, func, args, kwargs, index)
        elif is_random(func):
            result = run_random(session, func, args, kwargs, index)
        else:
            result = (func if index is None else in_float32(func, func))(*args, **kwargs)
    except RuntimeError as refusal:
        if index is None or session.is_meta:
            raise
        session.check_room(index, refusal)
        result = run_wider(func, args, kwargs, refusal)
    if index is not None:
        stamp_all(result, session, index)
    return result


def _usual(func: Any) -> Action:  # noqa: C901 - written out, for speed
    """Build the action of most operators: `run`, with everything precomputed that follows from the schema."""
    on_cpu = DIRECT.get(func, func._op)
    on_gpu = in_float32(func, on_cpu)
    makes_new = not func.is_view and not _keeps_storage(func)
    writes = func._schema.is_mutable
    takes_numbers = torch.Tag.pointwise in func.tags and not writes and not compares_all(func)
    tolerated = NUMBER if takes_numbers else 0
    without_numbers = memo.remembering(func, run)

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if session.is_meta:
            return without_numbers(session, func, args, kwargs)
        index, cpu_operands = survey(session, func, args, kwargs)
        if index is None:
            if not cpu_operands or cpu_operands >= USERS:
                return on_cpu(*args, **kwargs)
            return _run_on_cpus_own(session, on_cpu, args, kwargs)
        if cpu_operands and cpu_operands & ~USERS > tolerated:
            check_cpu_operands(session, func, args, kwargs)
        try:
            result = on_gpu(*args, **kwargs) if kwargs else on_gpu(*args)
        except RuntimeError as refusal:
            session.check_room(index, refusal)
            result = run_wider(func, args, kwargs, refusal)
        if type(result) is not _Tensor:
            stamp_all(result, session, index)
        elif result.layout is not _strided:  # sparse ones get other parts
            stamp(result, session, index)
        elif makes_new or cpu_operands:  # as `stamp` does, at the cost of one call less
            storage = result.untyped_storage()
            attributes = storage.__dict__
            if session.key in attributes or session.num_uncounted:
                stamp(result, session, index)
            else:
                attributes[session.key] = Allocation(session.ledger, index, storage.nbytes())
        return result

    kinds = [(spec.kwarg_only, str(spec.type)) for spec in func._schema.arguments]
    has_hidden = any("Tensor" in kind and (is_named or "List" in kind) for is_named, kind in kinds)
    action = as_cpp(act) if has_hidden else act  # the mode looks at lone operands alone
    tensors = sum("Tensor" in kind for _, kind in kinds)
    if func.is_view and func in DIRECT and tensors == 1:
        return _viewing(action, on_cpu)
    return one_by_one_where_mixed(action) if func.name().startswith("aten::_foreach_") else action


def _copying_within_a_gpu(action: Action) -> Action:
    """Return the action of `copy_`, which needs no rule where both tensors are on one GPU."""
    copy = DIRECT[_COPY]

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not session.is_meta:
            try:
                labels = [arg.untyped_storage().__dict__.get(session.key) for arg in args[:2]]
            except (NotImplementedError, RuntimeError, ValueError):
                labels = [None, None]
            here, there = labels
            if here is not None and there is not None and here.index == there.index:
                return copy(*args, **kwargs)
        return action(session, func, args, kwargs)

    return act


def _viewing(action: Action, view: Any) -> Action:
    """Return the action of a view, which shares the label of what it views."""

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            if session.key in args[0].untyped_storage().__dict__:
                return view(*args, **kwargs)
        except (NotImplementedError, RuntimeError, ValueError):
            pass  # it has no storage of its own
        return action(session, func, args, kwargs)

    return act


def _run_on_cpus_own(session: Session, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator on the CPU, and mark what it makes of tensors that C++ made."""
    is_cpps = all(made_by_cpp(session, args, kwargs))
    result = op(*args, **kwargs)
    if is_cpps:
        note_cpps(session, result)
    return result


def _keeps_storage(func: Any) -> bool:
    """Return whether the result is the first operand, written into: its storage has its label."""
    returns = func._schema.returns
    written = len(returns) == 1 and returns[0].alias_info is not None and returns[0].alias_info.is_write
    return bool(written and func._schema.name.endswith("_") and func._schema.name not in _RESIZING)


def _run_with_scratch(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a convolution, and count what cuDNN takes meanwhile, if that is asked for."""
    result = run(session, func, args, kwargs)
    label = label_of(args[0], session.key)
    if session.scratch_capability is not None and label is not None:
        nbytes = scratch_bytes(func, args, result, session.scratch_capability)
        Allocation(session.ledger, label.index, nbytes, Kind.SCRATCH)
    return result
