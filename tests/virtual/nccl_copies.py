"""The part of the table for collectives that only copy, and for sends and receives; see `nccl_cells.py`."""

import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from nccl_cells import COPIED, Cell, Rank, _given, _raising, all_inputs, chunks, numbers, reduced


def copies() -> Iterator[Cell]:
    """Yield a cell for each copying collective and type."""
    for dtype in COPIED:
        for form, (run, expect) in FORMS.items():
            if dtype.is_complex and form in _NO_COMPLEX:
                continue
            yield Cell(
                f"{form} {str(dtype).removeprefix('torch.')}",
                "getNcclDataType in [legacy], [second]; views of complex numbers: [c10d]",
                lambda me, run=run, dtype=dtype: run(me, dtype),
                lambda rank, size, expect=expect, dtype=dtype: expect(rank, size, dtype),
            )
    for form, (run, _) in FORMS.items():
        if form == "send":  # two ranks' alone
            continue
        yield _raising(
            f"{form} int16",
            "getNcclDataType in [legacy], [second]",
            lambda me, run=run: run(me, torch.int16),
            _UNCONVERTIBLE if form.startswith(_SENT) else _UNSUPPORTED,
            (RuntimeError, "Unsupported tensor data type for NCCL"),
        )
    yield from layouts()


_UNSUPPORTED = TypeError, "Input tensor data type is not supported for NCCL process group: Short"
_UNCONVERTIBLE = RuntimeError, "Unconvertible NCCL type Short"
_SENT = "all_to_all", "gather", "scatter"
"""[legacy] leaves them to torch/csrc/cuda/nccl.cpp."""


def _empty(me: Rank, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=me.device)


def _broadcast(me: Rank, dtype: torch.dtype) -> Any:
    tensor = _given(me, dtype, (2, 3))
    dist.broadcast(tensor, group_src=1 % me.size, group=me.group)
    return tensor


def _all_gather(me: Rank, dtype: torch.dtype) -> Any:
    outputs = [_empty(me, dtype, 2, 3) for _ in range(me.size)]
    dist.all_gather(outputs, _given(me, dtype, (2, 3)), group=me.group)
    return outputs


def _all_gather_uneven(me: Rank, dtype: torch.dtype) -> Any:
    outputs = [_empty(me, dtype, rank + 1) for rank in range(me.size)]
    work = dist.all_gather(outputs, _given(me, dtype, (me.rank + 1,)), group=me.group, async_op=True)
    work.wait()
    return outputs


def _all_gather_single(me: Rank, dtype: torch.dtype) -> Any:
    output = _empty(me, dtype, 2 * me.size, 3)
    dist.all_gather_into_tensor(output, _given(me, dtype, (2, 3)), group=me.group)
    return output


def _all_gather_stacked(me: Rank, dtype: torch.dtype) -> Any:
    output = _empty(me, dtype, me.size, 2, 3)
    dist.all_gather_into_tensor(output, _given(me, dtype, (2, 3)), group=me.group)
    return output.view(2 * me.size, 3)


def _all_gather_in_place(me: Rank, dtype: torch.dtype) -> Any:
    output = _empty(me, dtype, 2 * me.size, 3)
    mine = output[2 * me.rank : 2 * me.rank + 2]
    mine.copy_(_given(me, dtype, (2, 3)))
    dist.all_gather_into_tensor(output, mine, group=me.group)
    return output


def _all_gather_coalesced(me: Rank, dtype: torch.dtype) -> Any:
    outputs = [_empty(me, dtype, 2 * me.size, 3), _empty(me, dtype, me.size)]
    with dist._coalescing_manager(group=me.group, device=me.device):
        dist.all_gather_into_tensor(outputs[0], _given(me, dtype, (2, 3)), group=me.group)
        dist.all_gather_into_tensor(outputs[1], _given(me, dtype, (1,)), group=me.group)
    return outputs


def _gather(me: Rank, dtype: torch.dtype) -> Any:
    is_root = me.rank == me.size - 1
    outputs = [_empty(me, dtype, 2, 3) for _ in range(me.size)] if is_root else None
    dist.gather(_given(me, dtype, (2, 3)), outputs, group_dst=me.size - 1, group=me.group)
    return outputs


def _gather_single(me: Rank, dtype: torch.dtype) -> Any:
    output = _empty(me, dtype, 2 * me.size, 3) if me.rank == me.size - 1 else None
    dist.gather_single(_given(me, dtype, (2, 3)), output, group_dst=me.size - 1, group=me.group)
    return output


def _scatter(me: Rank, dtype: torch.dtype) -> Any:
    output = _empty(me, dtype, 2, 3)
    given = chunks(_given(me, dtype, (2 * me.size, 3)), me.size) if me.rank == 1 % me.size else None
    dist.scatter(output, given, group_src=1 % me.size, group=me.group)
    return output


def _all_to_all(me: Rank, dtype: torch.dtype) -> Any:
    outputs = [_empty(me, dtype, rank + 1) for rank in range(me.size)]
    given = [_given(me, dtype, (me.rank + 1,)) for _ in range(me.size)]
    dist.all_to_all(outputs, given, group=me.group)
    return outputs


def _all_to_all_single(me: Rank, dtype: torch.dtype) -> Any:
    output = _empty(me, dtype, 2 * me.size, 3)
    dist.all_to_all_single(output, _given(me, dtype, (2 * me.size, 3)), group=me.group)
    return output


def _all_to_all_uneven(me: Rank, dtype: torch.dtype) -> Any:
    """Send rank r a row more than rank r - 1, and none to rank 0."""
    sizes = list(range(me.size))
    output = _empty(me, dtype, me.rank * me.size, 2)
    given = _given(me, dtype, (sum(sizes), 2))
    dist.all_to_all_single(output, given, [me.rank] * me.size, sizes, group=me.group)
    return output


def _ring(me: Rank, dtype: torch.dtype) -> Any:
    output = _empty(me, dtype, 2, 3)
    after, before = (me.rank + 1) % me.size, (me.rank - 1) % me.size
    given = _given(me, dtype, (2, 3))
    operations = [
        dist.P2POp(dist.irecv, output, group=me.group, group_peer=before),
        dist.P2POp(dist.isend, given, group=me.group, group_peer=after),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return output


def _send(me: Rank, dtype: torch.dtype) -> Any:
    """Pair sends and receives by their order: NCCL has no tags."""
    if me.rank == 0:
        for tag in (1, 2):
            dist.send(_given(me, dtype, (tag,)), group=me.group, group_dst=1, tag=tag)
    if me.rank == 1:
        outputs = [_empty(me, dtype, length) for length in (1, 2)]
        for output, tag in zip(outputs, (2, 1), strict=True):
            dist.recv(output, group=me.group, group_src=0, tag=tag)
        return outputs
    return None


def _itself(me: Rank, dtype: torch.dtype) -> Any:
    output = _empty(me, dtype, 6)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, _given(me, dtype), group=me.group, group_peer=me.rank),
            dist.P2POp(dist.irecv, output, group=me.group, group_peer=me.rank),
        ]
    )
    for work in works:
        work.wait()
    return output


def _rows(dtype: torch.dtype, size: int) -> list[torch.Tensor]:
    return all_inputs(dtype, size, (2, 3))


FORMS: dict[str, tuple[Any, Any]] = {
    "broadcast": (_broadcast, lambda _, size, dtype: numbers(dtype, 1 % size, (2, 3))),
    "all_gather": (_all_gather, lambda _, size, dtype: _rows(dtype, size)),
    "all_gather uneven": (
        _all_gather_uneven,
        lambda _, size, dtype: [numbers(dtype, rank, (rank + 1,)) for rank in range(size)],
    ),
    "all_gather_into_tensor": (_all_gather_single, lambda _, size, dtype: joined(_rows(dtype, size))),
    "all_gather_into_tensor stacked": (
        _all_gather_stacked,
        lambda _, size, dtype: joined(_rows(dtype, size)),
    ),
    "all_gather_into_tensor in place": (
        _all_gather_in_place,
        lambda _, size, dtype: joined(_rows(dtype, size)),
    ),
    "all_gather_into_tensor coalesced": (
        _all_gather_coalesced,
        lambda _, size, dtype: [joined(_rows(dtype, size)), joined(all_inputs(dtype, size, (1,)))],
    ),
    "gather": (_gather, lambda rank, size, dtype: _rows(dtype, size) if rank == size - 1 else None),
    "scatter": (
        _scatter,
        lambda rank, size, dtype: chunks(numbers(dtype, 1 % size, (2 * size, 3)), size)[rank],
    ),
    "all_to_all": (
        _all_to_all,
        lambda _, size, dtype: [numbers(dtype, rank, (rank + 1,)) for rank in range(size)],
    ),
    "all_to_all_single": (
        _all_to_all_single,
        lambda rank, size, dtype: joined(
            [chunks(numbers(dtype, each, (2 * size, 3)), size)[rank] for each in range(size)]
        ),
    ),
    "all_to_all_single uneven": (
        _all_to_all_uneven,
        lambda rank, size, dtype: joined(
            [
                numbers(dtype, each, (sum(range(size)), 2))[sum(range(rank)) : sum(range(rank + 1))]
                for each in range(size)
            ]
        ),
    ),
    "batch_isend_irecv": (_ring, lambda rank, size, dtype: numbers(dtype, (rank - 1) % size, (2, 3))),
    "batch_isend_irecv itself": (_itself, lambda rank, _, dtype: numbers(dtype, rank)),
    "send": (
        _send,
        lambda rank, _, dtype: [numbers(dtype, 0, (1,)), numbers(dtype, 0, (2,))] if rank == 1 else None,
    ),
}
if hasattr(dist, "gather_single"):  # torch 2.15
    FORMS["gather_single"] = (
        _gather_single,
        lambda rank, size, dtype: joined(_rows(dtype, size)) if rank == size - 1 else None,
    )
_NO_COMPLEX = {"gather", "gather_single"}
"""[c10d] takes complex numbers apart elsewhere."""


def joined(parts: list[torch.Tensor]) -> torch.Tensor:
    """Return parts as one tensor, by their bytes: `cat` lacks some types."""
    first = parts[0]
    raw = [part.contiguous().view(torch.uint8) if part.element_size() == 1 else part for part in parts]
    return torch.cat(raw).view(first.dtype)


def layouts() -> Iterator[Cell]:
    """Yield cells of tensors that are empty, strided, or in another order."""
    yield Cell("empty", "[legacy], [second]: no collective asks for a size", _all_empty, lambda *_: "done")

    def last(me: Rank) -> Any:
        tensor = _given(me, torch.float32, (1, 2, 3, 4)).contiguous(memory_format=torch.channels_last)
        dist.broadcast(tensor, group_src=0, group=me.group)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=me.group)
        return tensor

    yield Cell(
        "channels last",
        "check_gpu_single_tensor in [legacy], ensureTensorContiguous in [second]: suggest_memory_format",
        last,
        lambda *_: numbers(torch.float32, 0, (1, 2, 3, 4)),
    )
    yield Cell(
        "channels last on one side",
        "gather in torch/csrc/cuda/nccl.cpp, ncclSend in [legacy]: pointers alone, so memory in its order",
        _gather_channels_last,
        lambda rank, size: [_in_memory_order(each) for each in range(size)] if rank == 0 else None,
    )
    for name in ("gather", "scatter"):
        yield _raising(
            f"{name} of another shape",
            "assertTypeAndSizesMatch in [legacy]: on the root alone, before any rank waits for it",
            lambda me, name=name: _other_shape(me, name),
            (
                ValueError,
                f"ProcessGroupNCCL::{name}: invalid tensor size at index 0 (expected (2,), got (3,))",
            ),
        )
    yield Cell(
        "synchronize instead of wait",
        "[c10d] async work runs on NCCL's streams, and torch.cuda.synchronize waits for all streams",
        _synchronised,
        lambda _, size: reduced("AVG", all_inputs(torch.int32, size, (1000,))),
    )
    for name, call in {
        "broadcast": lambda me, tensor: dist.broadcast(tensor, group_src=0, group=me.group),
        "all_reduce": lambda me, tensor: dist.all_reduce(tensor, group=me.group),
        "reduce": lambda me, tensor: dist.reduce(tensor, group_dst=0, group=me.group),
        "all_gather": lambda me, tensor: dist.all_gather(
            [torch.empty_like(tensor) for _ in range(me.size)], tensor, group=me.group
        ),
        "all_to_all": lambda me, tensor: dist.all_to_all(
            [torch.empty_like(tensor) for _ in range(me.size)], [tensor] * me.size, group=me.group
        ),
        "all_to_all_single": lambda me, tensor: dist.all_to_all_single(
            torch.empty(12, device=me.device), tensor.expand(2, 3, 2).transpose(0, 1), group=me.group
        ),
    }.items():
        yield _raising(
            f"{name} transposed",
            "check_gpu_single_tensor in [legacy], ensureTensorContiguous in [second]",
            lambda me, call=call: call(me, _given(me, torch.float32, (2, 3)).t()),
            (ValueError, "Tensors must be contiguous"),
        )
    yield _raising(
        "all_gather_into_tensor of another size",
        "_allgather_base in [legacy], allGatherSingleImpl in [second]",
        lambda me: dist.all_gather_into_tensor(
            torch.empty(5, device=me.device), _given(me, torch.float32, (2,)), group=me.group
        ),
        (ValueError, "output tensor size must be equal to world_size times input tensor size"),
        (RuntimeError, "Output tensor size must be input_size * comm_size for allGatherSingleImpl"),
    )
    for name, sizes in {"a larger recv": (3, 2), "a smaller recv": (2, 3)}.items():
        yield _mismatch(name, *sizes)


def _gather_channels_last(me: Rank) -> Any:
    given = _given(me, torch.float32, (1, 2, 3, 4)).contiguous(memory_format=torch.channels_last)
    outputs = [_empty(me, torch.float32, 1, 2, 3, 4) for _ in range(me.size)] if me.rank == 0 else None
    dist.gather(given, outputs, group_dst=0, group=me.group)
    return outputs


def _in_memory_order(rank: int) -> torch.Tensor:
    shape = 1, 2, 3, 4
    return numbers(torch.float32, rank, shape).permute(0, 2, 3, 1).reshape(shape)


def _other_shape(me: Rank, name: str) -> None:
    """Refuse on every rank, as the root of a group of its own would."""
    parts = [_empty(me, torch.float32, 3) for _ in range(me.size)]
    args = (_empty(me, torch.float32, 2), parts)
    getattr(dist, name)(*args, **{"group_dst" if name == "gather" else "group_src": me.rank}, group=me.group)


def _synchronised(me: Rank) -> Any:
    if me.rank == 0:
        time.sleep(0.05)
    tensor = _given(me, torch.int32, (1000,))
    work = dist.all_reduce(tensor, dist.ReduceOp.AVG, group=me.group, async_op=True)
    torch.cuda.synchronize()
    assert work.is_completed()
    return tensor


def _mismatch(name: str, received: int, sent: int) -> Cell:
    """Return a cell of a send that does not fit, which is an error here and a hang or stale numbers there."""

    def run(me: Rank) -> Any:
        if me.rank == 0:
            dist.send(_given(me, torch.float32, (sent,)), group=me.group, group_dst=1)
        if me.rank != 1:
            return None
        try:
            dist.recv(torch.empty(received, device=me.device), group=me.group, group_src=0)
        except dist.DistBackendError as error:
            return str(error).partition(" at ")[0], "rank 0 sends" in str(error), str(error).count(".py:")
        return "no error"

    def expect(rank: int, _: int) -> Any:
        return (f"recv of {received} elements of float32", True, 2) if rank == 1 else None

    return Cell(name, "[guide]: the counts of ncclSend and ncclRecv must match", run, expect)


def _all_empty(me: Rank) -> str:
    tensor, whole = torch.empty(0, device=me.device), torch.empty(0, device=me.device)
    group = me.group
    dist.all_reduce(tensor, dist.ReduceOp.AVG, group=group)
    dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)
    dist.broadcast(tensor, group_src=0, group=group)
    dist.reduce(tensor, group_dst=0, group=group)
    dist.all_gather_into_tensor(whole, tensor, group=group)
    dist.reduce_scatter_tensor(tensor, whole, group=group)
    dist.all_to_all_single(whole, tensor, group=group)
    dist.all_gather([torch.empty(0, device=me.device) for _ in range(me.size)], tensor, group=group)
    if me.rank == 0:
        dist.send(tensor, group=group, group_dst=1)
    if me.rank == 1:
        dist.recv(tensor, group=group, group_src=0)
    return "done"
