"""Run a collective as NCCL runs it, over gloo.

Each form is brought into one that gloo takes: types that gloo lacks travel as bytes, reductions with the
arithmetic of `nccl_arithmetic.py`, dense tensors of any layout as the memory they are, and lists of uneven
tensors one by one. Nothing but the outputs is written: gloo's `reduce` would change the senders' tensors.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dpdemo.virtual.labels import flat_tensors, label_of, stamp
from dpdemo.virtual.ops.collectives import BY_NUMBER_OF_ELEMENTS, Call, second_groups
from dpdemo.virtual.ops.nccl_arithmetic import FLOAT8, PREMUL_SUM, Form, form_of
from dpdemo.virtual.ops.pending import after_all, work_of
from dpdemo.virtual.ops.premultiplied import current_factor
from dpdemo.virtual.state import the_session

_AS_BYTES = FLOAT8 | {torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}
GATHERED_AS_ONE = "gather_into_tensor_"
_COPIED_BY_ONE = {"reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"}
"""The first implementation copies where a rank is alone, and so applies no factor (pytorch#168092)."""
_AS_BYTES |= {kind for kind in (getattr(torch, "float4_e2m1fn_x2", None),) if kind is not None}


def run_over_gloo(call: Call) -> Any:
    """Run a collective of an NCCL group."""
    return _WAYS.get(call.name, Call.run)(call)


def gathering_lists(call: Call) -> Call:
    """Return a gather into one tensor as one into a list, which the root alone has."""
    if call.name != GATHERED_AS_ONE:
        return call
    output, given, group, root, *others = call.args
    is_root = call.group.rank() == root
    outputs = [list(output.view(call.group.size(), *given.shape))] if is_root else []
    args = outputs, [given], group, root, *others
    return call._replace(name="gather_", func=torch.ops.c10d.gather_.default, args=args)


def _all_reduce(call: Call) -> Any:
    """Reduce in place: `all_reduce` in each tensor, `reduce` in the root's alone."""
    tensors = call.args[0]
    is_written = call.root_at is None or call.group.rank() == call.args[call.root_at]
    memories = [_memory_of(tensor) for tensor in tensors]
    form = _form(call, memories[0].dtype)
    sent = [_sent(form, memory, is_written) for memory in memories]
    if not is_written:
        sent = [_apart(part, memory) for part, memory in zip(sent, memories, strict=True)]
    result = _with_reduction(call, form, sent, *call.args[1:]).run()
    if is_written and form.after is None and all(map(_is_same, sent, tensors)):
        return result

    def finish() -> None:
        if is_written and form.after is not None:
            for part, memory in zip(sent, memories, strict=True):
                memory.copy_(form.after(part))

    return _pending(call, [work_of(result)], tensors, finish)


def _reduce_scatter(call: Call) -> Any:
    """Reduce into a tensor for each rank, or each into several (`_base_` and `_coalesced_`)."""
    outputs, given = ([each] if isinstance(each, torch.Tensor) else each for each in call.args[:2])
    form = _form(call, outputs[0].dtype)
    sent = [_sent(form, _memory_of(part).view(-1), is_ours=False) for part in given]
    got = [_received(form, output, like) for output, like in zip(outputs, sent, strict=True)]
    is_one = isinstance(call.args[0], torch.Tensor)
    args = (got[0], sent[0]) if is_one else (got, sent)
    result = _with_reduction(call, form, *args, *call.args[2:]).run()
    return _unpacked(call, form, result, outputs, got)


def _reduce_scatter_list(call: Call) -> Any:
    (output,), (given,) = call.args[:2]
    form = _form(call, output.dtype)
    sent = [_sent(form, part.reshape(-1), is_ours=False) for part in given]
    if len({part.numel() for part in sent}) > 1:
        return _reduce_each(call, form, output, sent)
    got = _received(form, output, sent[call.group.rank()])
    result = _with_reduction(call, form, [got], [sent], *call.args[2:]).run()
    return _unpacked(call, form, result, [output], [got])


def _reduce_each(call: Call, form: Form, output: Tensor, sent: list[Tensor]) -> Any:
    """Reduce tensors of several sizes, each to its rank, as NCCL does it."""
    group, reduction = call.args[2], _reduce_op(call, form)
    parts = [part.clone() for part in sent]
    works = [
        work_of(torch.ops.c10d.reduce_([part], group, reduction, rank, 0, True, -1))
        for rank, part in enumerate(parts)
    ]
    mine = parts[call.group.rank()]

    def finish() -> None:
        _put(form, mine, output)

    return _pending(call, works, [output], finish)


def _unpacked(call: Call, form: Form, result: Any, outputs: list[Tensor], got: list[Tensor]) -> Any:
    """Return a reduction's result once its outputs have their own type again."""
    if form.after is None and not call.is_async and all(map(_is_same, got, outputs)):
        return result

    def finish() -> None:
        for part, output in zip(got, outputs, strict=True) if form.after is not None else ():
            _put(form, part, output)

    return _pending(call, [work_of(result)], outputs, finish)


def _put(form: Form, part: Tensor, output: Tensor) -> None:
    values = part.view(output.dtype) if form.after is None else form.after(part)
    output.copy_(values.view(output.shape))


def _form(call: Call, dtype: torch.dtype) -> Form:
    assert call.reduction is not None  # noqa: S101 - only called for reductions
    is_first = call.group.group_name not in second_groups
    is_copy = is_first and call.group.size() == 1 and call.name in _COPIED_BY_ONE
    factor = current_factor() if call.reduction == PREMUL_SUM and not is_copy else 1.0
    return form_of(dtype, call.reduction, call.group.size(), factor)


def _sent(form: Form, given: Tensor, is_ours: bool) -> Tensor:
    return given if form.before is None else form.before(given, is_ours)


def _received(form: Form, output: Tensor, like: Tensor) -> Tensor:
    """Return where gloo writes: the output's own memory, or where it has another type, a new tensor."""
    if form.after is not None:
        return torch.empty(output.numel(), dtype=like.dtype, device="cpu")
    flat = _memory_of(output).view(-1)
    return flat if flat.dtype is like.dtype else flat.view(like.dtype)


def _with_reduction(call: Call, form: Form, *args: Any) -> Call:
    changed = list(args)
    changed[call.reduction_at or 0] = _reduce_op(call, form)
    return call._replace(args=tuple(changed))


def _reduce_op(call: Call, form: Form) -> Any:
    """Return gloo's reduction as the dispatcher takes it: the program's own, or a sum."""
    is_same = form.reduction == call.reduction
    return call.args[call.reduction_at or 0] if is_same else torch.classes.c10d.ReduceOp()


def _copying(call: Call) -> Any:
    """Run a collective that only copies; types that gloo lacks travel as bytes."""
    args = tuple(_as_bytes(arg) for arg in call.args)
    if call.name in BY_NUMBER_OF_ELEMENTS:
        args = (_memory_of(args[0]).view(-1), _memory_of(args[1]).view(-1), *args[2:])
    result = call._replace(args=args).run()
    outputs = list(flat_tensors(call.args[0]))
    if all(map(_is_same, flat_tensors(args[0]), outputs)):
        return result
    return _pending(call, [work_of(result)], outputs, lambda: None)


def _gather_several(call: Call) -> Any:
    flat = tuple([_memory_of(part).view(-1) for part in parts] for parts in call.args[:2])
    return _copying(call._replace(args=(*flat, *call.args[2:])))


def _exchange_rows(call: Call) -> Any:
    """Exchange rows, or without sizes equal numbers of elements; of channels-last tensors their memory."""
    output, given, group, *sizes = call.args
    if not any(sizes[:2]):
        lengths = sizes[:2]
    elif output.is_contiguous() and given.is_contiguous():
        return _copying(call)
    else:
        lengths = [
            [rows * (tensor.numel() // max(len(tensor), 1)) for rows in splits]
            for tensor, splits in ((output, sizes[0]), (given, sizes[1]))
        ]
    memories = _memory_of(output).view(-1), _memory_of(given).view(-1)
    return _copying(call._replace(args=(*memories, group, *lengths, *sizes[2:])))


def _copying_memory(call: Call) -> Any:
    """Copy between tensors whose layouts may differ, as NCCL does: the memory of each, in its order."""
    if all(tensor.is_contiguous() for tensor in flat_tensors(call.args[:2])):
        return _copying(call)
    result = _copying(call._replace(args=(*map(_flat, call.args[:2]), *call.args[2:])))
    return _pending(call, [work_of(result)], list(flat_tensors(call.args[0])), lambda: None)


def _flat(value: Any) -> Any:
    if isinstance(value, list):
        return [_flat(each) for each in value]
    return _memory_of(value).view(-1) if isinstance(value, torch.Tensor) else value


def _all_gather(call: Call) -> Any:
    """Gather into a list; of several sizes each rank broadcasts its own, as NCCL does it."""
    (outputs,), (given,), group = call.args[:3]
    if len({tensor.shape for tensor in (*outputs, given)}) == 1:
        return _gather_as_one(call) if call.is_async else _copying(call)
    if given.numel() != outputs[call.group.rank()].numel():
        raise ValueError("Tensor input and output of _broadcast_oop must have the same number of elements ")
    parts = [torch.empty(output.numel(), dtype=output.dtype, device="cpu") for output in outputs]
    parts[call.group.rank()].copy_(given.reshape(-1))
    works = [
        work_of(torch.ops.c10d.broadcast_([_as_bytes(part)], group, rank, 0, True, -1))
        for rank, part in enumerate(parts)
    ]

    def finish() -> None:
        for output, part in zip(outputs, parts, strict=True):
            output.copy_(part.view(output.shape))

    return _pending(call, works, outputs, finish)


def _gather_as_one(call: Call) -> Any:
    """Gather into one tensor, which is what NCCL's future has, and copy its rows to the program's list."""
    (outputs,), (given,) = call.args[:2]
    whole = torch.empty((len(outputs), *given.shape), dtype=given.dtype, device="cpu")
    session = the_session()
    label = label_of(given, session.key)
    if label is not None:
        stamp(whole, session, label.index)
    args = [_as_bytes(list(whole))], [_as_bytes(given)], *call.args[2:]
    result = call._replace(args=args).run()

    def finish() -> None:
        for output, part in zip(outputs, whole, strict=True):
            output.copy_(part)

    return _pending(call, [work_of(result)], [whole], finish)


def _exchange(call: Call) -> Any:
    """Exchange tensors of any sizes: as one tensor, cut by the numbers of elements."""
    outputs, given, group, *others = call.args
    sizes = [[tensor.numel() for tensor in tensors] for tensors in (outputs, given)]
    received = torch.empty(sum(sizes[0]), dtype=outputs[0].dtype, device="cpu")
    sent = torch.cat([_memory_of(tensor).view(-1) for tensor in given])
    wire = _as_bytes([received, sent])
    work = work_of(torch.ops.c10d.alltoall_base_(*wire, group, *sizes, *others))

    def finish() -> None:
        for output, part in zip(outputs, torch.split(received, sizes[0]), strict=True):
            _memory_of(output).view(-1).copy_(part)

    return _pending(call, [work], outputs, finish)


def _pending(
    call: Call, works: Sequence[Any], outputs: Sequence[Tensor], finish: Callable[[], object]
) -> Any:
    """Return a collective's results, whose work ends with `finish`."""
    work = after_all(works, list(outputs), finish)
    return (call.args[0], work) if len(call.func._schema.returns) > 1 else work


def _as_bytes(value: Any) -> Any:
    """Return tensors of types that gloo lacks as bytes, and everything else as it is."""
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            return torch.view_as_real(value)
        return value.view(torch.uint8) if value.dtype in _AS_BYTES else value
    return [_as_bytes(each) for each in value] if isinstance(value, list) else value


def _memory_of(tensor: Tensor) -> Tensor:
    """Return a dense tensor of any layout as its memory, in its order; a contiguous one as it is."""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    if real.is_contiguous():
        return real
    return real.as_strided((real.numel(),), (1,))


def _apart(part: Tensor, memory: Tensor) -> Tensor:
    """Return `part`, or a copy if it is the same memory."""
    is_same = part.untyped_storage().data_ptr() == memory.untyped_storage().data_ptr()
    return part.clone() if is_same else part


def _is_same(part: Tensor, tensor: Tensor) -> bool:
    """Return whether gloo's result shows the numbers of the program's tensor, be it in another shape."""
    return part.dtype is tensor.dtype


_WAYS: dict[str, Callable[[Call], Any]] = {
    "allreduce_": _all_reduce,
    "allreduce_coalesced_": _all_reduce,
    "reduce_": _all_reduce,
    "reduce_scatter_": _reduce_scatter_list,
    "_reduce_scatter_base_": _reduce_scatter,
    "reduce_scatter_tensor_coalesced_": _reduce_scatter,
    "broadcast_": _copying_memory,
    "allgather_": _all_gather,
    "_allgather_base_": _copying,
    "allgather_into_tensor_coalesced_": _gather_several,
    "gather_": _copying_memory,
    "scatter_": _copying_memory,
    "alltoall_": _exchange,
    "alltoall_base_": _exchange_rows,
}
