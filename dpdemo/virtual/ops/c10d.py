"""The operators `c10d.*`: every collective passes here, those of DDP's reducer inside `backward()` too.

NCCL's name stands over gloo (`distributed.py`), and C++ sees tensors of the CPU. What NCCL refuses is refused
(`nccl_limits.py`); the rest runs as NCCL runs it (`over_gloo.py`, `point_to_point.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.labels import flat_tensors, label_of, stamp_all
from dpdemo.virtual.ops import point_to_point
from dpdemo.virtual.ops.collectives import Call, coalesced, listeners, mixed_groups, nccl_groups
from dpdemo.virtual.ops.delegated import by_code_for
from dpdemo.virtual.ops.nccl_limits import prepare
from dpdemo.virtual.ops.over_gloo import GATHERED_AS_ONE, gathering_lists, run_over_gloo
from dpdemo.virtual.ops.own_gpu import check_own_gpu
from dpdemo.virtual.ops.pending import note_outstanding, raise_failure, work_of
from dpdemo.virtual.ops.premultiplied import with_factor

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.virtual.state import Session

BETWEEN_TWO = {"send": point_to_point.send, "recv_": point_to_point.receive}
_functional: Any = torch.ops._c10d_functional
_WAITS = {
    getattr(_functional, name).default
    for name in ("wait_tensor", "wait_tensors")
    if hasattr(_functional, name)
}
_run_in_parts = by_code_for(torch._C.DispatchKey.CompositeExplicitAutograd)


def run_functional(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a collective that returns its result, which C++ makes: on the GPU of the input, also under gloo."""
    result = with_factor(lambda *_: _run_in_parts(session, func, args, kwargs), *args)
    if func._schema.name in _WAITS:
        raise_failure()  # C++ waits without asking for errors
    labels = (label_of(tensor, session.key) for tensor in flat_tensors(args))
    label = next((label for label in labels if label is not None), None)
    if label is not None:
        stamp_all(result, session, label.index)
    return result


def action(func: Any, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a collective takes; `run` runs an ordinary operator."""
    name = func._schema.name.removeprefix("c10d::")
    kinds = [str(spec.type).rpartition(".")[2] for spec in func._schema.arguments]
    if "ProcessGroup" not in kinds:
        return run
    group_at = kinds.index("ProcessGroup")
    reduction_at = kinds.index("ReduceOp") if "ReduceOp" in kinds else None
    names = [spec.name for spec in func._schema.arguments]
    root_at = names.index("root_rank") if "root_rank" in names else None
    async_at = names.index("async_op") if "async_op" in names else None

    def collective(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        group = torch.distributed.ProcessGroup.unbox(args[group_at])
        reduction = None if reduction_at is None else int(args[reduction_at].op())
        is_async = async_at is not None and (len(args) <= async_at or args[async_at])
        call = Call(name, func, args, kwargs, group, reduction_at, root_at, reduction, is_async)
        is_nccl = session.finish_alone is None and _is_by_nccl(session, call)
        if is_nccl:
            prepare(session, call)
        call = gathering_lists(call)
        for listener in listeners:
            listener(call)
        if is_nccl and name not in BETWEEN_TWO:
            check_own_gpu(session, group, _index_of(session, call))
        if session.finish_alone is not None:
            result = session.finish_alone(call)
        else:
            result = _by_gloo(call) if is_nccl else call.run()
        if is_nccl and is_async and not session.current.makes_buckets:  # the reducer waits for its tables
            note_outstanding(work_of(result))
        if name == GATHERED_AS_ONE:
            result = args[0], result
        if group.group_name in coalesced:
            coalesced[group.group_name].append(result[-1] if isinstance(result, (tuple, list)) else result)
        return result

    return collective


def _is_by_nccl(session: Session, call: Call) -> bool:
    """Return whether NCCL would run a collective: of two backends, the one for the tensors' device."""
    name = call.group.group_name
    if name not in mixed_groups:
        return name in nccl_groups
    return any(label_of(tensor, session.key) is not None for tensor in flat_tensors(call.args))


def _index_of(session: Session, call: Call) -> int | None:
    """Return the GPU on which a collective runs; NCCL guesses that of a barrier, where nothing tells it."""
    if call.name == "barrier":
        devices, bound = call.args[2], call.group.bound_device_id
        return int(devices[0]) if devices else getattr(bound, "index", None)
    first = next(flat_tensors(call.args), None)
    label = None if first is None else label_of(first, session.key)
    return None if label is None else label.index


def _by_gloo(call: Call) -> Any:
    """Run a collective; gloo's refusals have NCCL's name."""
    try:
        return BETWEEN_TWO[call.name](call) if call.name in BETWEEN_TWO else run_over_gloo(call)
    except (RuntimeError, ValueError) as error:
        if "ProcessGroupGloo" not in str(error):
            raise
        raise type(error)(str(error).replace("ProcessGroupGloo", "ProcessGroupNCCL")) from None
