"""The operators `c10d.*`: every collective passes here, those of DDP's reducer inside `backward()` too.

NCCL's name stands over gloo (`distributed.py`), and C++ sees tensors of the CPU. What NCCL refuses is refused
(`nccl_limits.py`); what it takes and gloo does not is brought into a form that gloo takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.labels import flat_tensors, label_of, stamp_all
from dpdemo.virtual.ops.collectives import (
    BETWEEN_TWO,
    BY_NUMBER_OF_ELEMENTS,
    Call,
    coalesced,
    listeners,
    mixed_groups,
    nccl_groups,
)
from dpdemo.virtual.ops.mode import by_code_for
from dpdemo.virtual.ops.nccl_limits import AVG, check_own_gpu, prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.virtual.state import Session

FUNCTIONAL = {"_c10d_functional", "_c10d_functional_autograd", "_dtensor"}
"""Namespaces of collectives that return their result, as DTensor and tensor parallel use them."""
_run_in_parts = by_code_for(torch._C.DispatchKey.CompositeExplicitAutograd)


def run_functional(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a collective that returns its result, which C++ makes: on the GPU of the input, also under gloo."""
    result = _run_in_parts(session, func, args, kwargs)
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

    def collective(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        group = torch.distributed.ProcessGroup.unbox(args[group_at])
        call = Call(name, func, args, kwargs, group, reduction_at, root_at)
        is_nccl = session.finish_alone is None and _is_by_nccl(session, call)
        if is_nccl:
            prepare(session, call)
        for listener in listeners:
            listener(call)
        if is_nccl and name not in BETWEEN_TWO:
            check_own_gpu(session, group, _index_of(session, call))
        if session.finish_alone is not None:
            result = session.finish_alone(call)
        else:
            result = _by_gloo(call) if is_nccl else call.run()
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
        return _adapted(call)
    except (RuntimeError, ValueError) as error:
        if "ProcessGroupGloo" not in str(error):
            raise
        raise type(error)(str(error).replace("ProcessGroupGloo", "ProcessGroupNCCL")) from None


def _adapted(call: Call) -> Any:
    args = call.args
    if call.name in BY_NUMBER_OF_ELEMENTS:
        result = call._replace(args=(args[0].view(-1), args[1].reshape(-1), *args[2:])).run()
        return args[0], *result[1:]
    if call.name == "allgather_" and len({tensor.shape for tensor in flat_tensors(args[0])}) > 1:
        return _gather_uneven(call)
    if call.name == "alltoall_":
        return _exchange(*args)
    first = next(flat_tensors(args), None)
    if call.reduction == AVG and first is not None and not (first.is_floating_point() or first.is_complex()):
        return _averaged(call)
    return call.run()


def _averaged(call: Call) -> Any:
    """Average whole numbers as NCCL does: add, then divide and cut off."""
    args = list(call.args)
    args[call.reduction_at or 0] = torch.classes.c10d.ReduceOp()  # a sum
    result = call._replace(args=tuple(args)).run()
    work = result[-1] if isinstance(result, (tuple, list)) else result
    torch.distributed.Work.unbox(work).wait()
    for output in flat_tensors(args[0]):
        output.copy_(output.div(call.group.size(), rounding_mode="trunc"))
    return result


def _exchange(outputs: list[torch.Tensor], given: list[torch.Tensor], group: Any, *others: Any) -> Any:
    """Exchange tensors of any sizes: as one tensor, cut by the numbers of elements."""
    received = torch.cat([torch.empty_like(output).view(-1) for output in outputs])
    sizes = [[tensor.numel() for tensor in tensors] for tensors in (outputs, given)]
    sent = torch.cat([tensor.reshape(-1) for tensor in given])
    work = torch.ops.c10d.alltoall_base_(received, sent, group, *sizes, *others)
    torch.distributed.Work.unbox(work).wait()
    for output, part in zip(outputs, torch.split(received, sizes[0]), strict=True):
        output.copy_(part.view_as(output))
    return outputs, work


def _gather_uneven(call: Call) -> Any:
    """Gather tensors of several shapes: each rank broadcasts its own, as NCCL does it."""
    (outputs,), (given,), group, *_ = call.args
    me, work = call.group.rank(), None
    for rank, output in enumerate(outputs):
        if rank == me:
            output.copy_(given)
        _, work = torch.ops.c10d.broadcast_([output], group, rank, 0, True, -1)
        torch.distributed.Work.unbox(work).wait()
    return call.args[0], work
