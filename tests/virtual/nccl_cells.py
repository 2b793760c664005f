"""A table of what NCCL's collectives do, each cell with its source, and numbers worked out without them.

A cell is called on every rank with what the rank may use, and returns what the rank then holds, or raises;
the expectation is worked out from all ranks' inputs by one process. `test_nccl_semantics.py` runs them on
threads and in processes.

Sources: [enqueue] `hostToDevRedOp` in NCCL 2.30, src/enqueue.cc; [kernel] src/device/reduce_kernel.h;
[guide] NCCL's user guide, "Collective Operations" and "In-place Operations"; [legacy] PyTorch's
ProcessGroupNCCL.cpp; [second] nccl2/ProcessGroupNCCL.cpp, which is "nccl" from torch 2.15 on; [c10d]
distributed_c10d.py.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

Op = dist.ReduceOp
NAN = float("nan")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLE = (torch.uint8, torch.int8, torch.int32, torch.int64)
EIGHT = (torch.float8_e4m3fn, torch.float8_e5m2)
BYTES = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
COPIED = (*FLOATS, *WHOLE, torch.bool, *EIGHT, *BYTES, torch.complex64)
REFUSED = (torch.int16, torch.uint16)
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")


class Rank(NamedTuple):
    """What a rank has."""

    rank: int
    size: int
    group: Any
    device: torch.device


class Cell(NamedTuple):
    """One cell of the table."""

    name: str
    source: str
    run: Callable[[Rank], Any]
    expect: Callable[[int, int], Any]


_LARGE = {torch.float16: 60000.0, torch.float8_e4m3fn: 400.0, torch.float8_e5m2: 50000.0}


def numbers(dtype: torch.dtype, rank: int, shape: tuple[int, ...] = (6,)) -> torch.Tensor:
    """Return a rank's input: numbers at which the types' limits, signs and NaN tell the rules apart."""
    length = int(torch.Size(shape).numel())
    if dtype is torch.bool:
        return torch.tensor([(place >> rank) % 2 == 0 for place in range(length)]).view(shape)
    if dtype.is_complex:
        return torch.complex(*(numbers(torch.float32, rank + part, shape) for part in (0, 1))).to(dtype)
    if dtype.is_floating_point:
        large = {torch.float16: 60000.0, torch.float8_e4m3fn: 400.0, torch.float8_e5m2: 50000.0}.get(
            dtype, 3e38
        )
        base = [1.5 + rank, large, -2.0 * rank, 0.25, 0.5 * (-1) ** rank, 4.0]
    else:
        base = (
            [100, 7 + rank, rank, 3, 120, 2] if dtype is torch.uint8 else [100, -7 - rank, rank, -3, 120, 2]
        )
    return torch.tensor([base[place % 6] for place in range(length)]).to(dtype).view(shape)


def reduced(op: str, parts: list[torch.Tensor]) -> torch.Tensor:
    """Reduce the ranks' inputs in one process, one rank after another, in their type [enqueue, kernel]."""
    dtype, size = parts[0].dtype, len(parts)
    if dtype.is_complex:
        return torch.view_as_complex(reduced(op, [torch.view_as_real(part) for part in parts]))
    if dtype is torch.bool:
        return torch.stack(parts).any(0) if op in {"SUM", "MAX"} else torch.stack(parts).all(0)
    if dtype in EIGHT:
        return _reduced_eight(op, parts)
    if op == "AVG" and dtype.is_floating_point:
        parts = [part * torch.tensor(1 / size, dtype=torch.float64).to(dtype) for part in parts]
    total = parts[0].clone()
    for part in parts[1:]:
        if op in {"SUM", "AVG"}:
            total = total + part
        elif op == "PRODUCT":
            total = total * part
        else:  # the operand that is a number
            total = (torch.fmin if op == "MIN" else torch.fmax)(total, part)
    if op == "AVG" and not dtype.is_floating_point:
        total = (total.to(torch.int64).abs() // size * total.to(torch.int64).sign()).to(dtype)
    return total


def _reduced_eight(op: str, parts: list[torch.Tensor]) -> torch.Tensor:
    dtype = parts[0].dtype
    largest = torch.finfo(dtype).max
    wide = [part.half() for part in parts]
    if op == "AVG":
        scale = torch.tensor(1 / len(parts)).to(dtype).half()
        wide = [(part * scale).float().clamp(-largest, largest).to(dtype).half() for part in wide]
    total = reduced("SUM" if op == "AVG" else op, wide)
    return total.float().clamp(-largest, largest).to(dtype)


def all_inputs(dtype: torch.dtype, size: int, shape: tuple[int, ...] = (6,)) -> list[torch.Tensor]:
    """Return what all ranks bring along."""
    return [numbers(dtype, rank, shape) for rank in range(size)]


def chunks(whole: torch.Tensor, size: int) -> list[torch.Tensor]:
    """Cut rows into a part for each rank."""
    return list(whole.chunk(size))


def reductions() -> Iterator[Cell]:
    """Yield a cell for each reducing collective, operation and type."""
    for dtype, op in itertools.product((*FLOATS, *WHOLE, torch.bool, *EIGHT, torch.complex64), OPS):
        if dtype is torch.bool and op == "AVG":
            continue
        if dtype.is_complex and op not in {"SUM", "AVG"}:
            continue
        for form in FORMS_OF_REDUCTIONS:
            if dtype.is_complex and form.startswith("reduce_scatter"):
                continue
            yield _reduction(form, op, dtype)
    yield from _nan_cells()
    yield from _refused_reductions()


def _reduction(form: str, op: str, dtype: torch.dtype) -> Cell:
    run, expect = FORMS_OF_REDUCTIONS[form]
    name = f"{form} {op} {str(dtype).removeprefix('torch.')}"
    source = "[enqueue] [kernel]; bool: getNcclReduceOp in [legacy], [second]"
    return Cell(
        name,
        source,
        lambda me: run(me, getattr(Op, op), dtype),
        lambda rank, size: expect(rank, size, op, dtype),
    )


def _given(me: Rank, dtype: torch.dtype, shape: tuple[int, ...] = (6,)) -> torch.Tensor:
    return numbers(dtype, me.rank, shape).to(me.device)


def _all_reduce(me: Rank, op: Any, dtype: torch.dtype) -> Any:
    tensor = _given(me, dtype)
    dist.all_reduce(tensor, op, group=me.group)
    return tensor


def _all_reduce_async(me: Rank, op: Any, dtype: torch.dtype) -> Any:
    tensor = _given(me, dtype)
    work = dist.all_reduce(tensor, op, group=me.group, async_op=True)
    assert work.wait()
    (result,) = work.get_future().value()
    assert result.data_ptr() == tensor.data_ptr() or torch.is_complex(tensor)
    return tensor


def _all_reduce_view(me: Rank, op: Any, dtype: torch.dtype) -> Any:
    base = _given(me, dtype, (10,))
    dist.all_reduce(base[2:8], op, group=me.group)
    return base


def _expect_view(rank: int, size: int, op: str, dtype: torch.dtype) -> Any:
    inputs = all_inputs(dtype, size, (10,))
    inputs[rank][2:8] = reduced(op, [part[2:8].clone() for part in all_inputs(dtype, size, (10,))])
    return inputs[rank]


def _all_reduce_coalesced(me: Rank, op: Any, dtype: torch.dtype) -> Any:
    tensors = [_given(me, dtype), _given(me, dtype, (3,))]
    with dist._coalescing_manager(group=me.group, device=me.device):
        for tensor in tensors:
            dist.all_reduce(tensor, op, group=me.group)
    return tensors


def _reduce(me: Rank, op: Any, dtype: torch.dtype) -> Any:
    tensor = _given(me, dtype)
    for _ in range(2):
        dist.reduce(tensor, group_dst=1 % me.size, op=op, group=me.group)
    return tensor


def _expect_reduce(rank: int, size: int, op: str, dtype: torch.dtype) -> Any:
    inputs = all_inputs(dtype, size)
    for _ in range(2):
        inputs[1 % size] = reduced(op, inputs)
    return inputs[rank]


def _reduce_scatter(me: Rank, op: Any, dtype: torch.dtype) -> Any:
    given = chunks(_given(me, dtype, (2 * me.size,)), me.size)
    output = torch.empty(2, dtype=dtype, device=me.device)
    dist.reduce_scatter(output, given, op, group=me.group)
    return output, given


def _expect_scattered(rank: int, size: int, op: str, dtype: torch.dtype) -> Any:
    inputs = all_inputs(dtype, size, (2 * size,))
    return chunks(reduced(op, inputs), size)[rank], chunks(inputs[rank], size)


def _reduce_scatter_uneven(me: Rank, op: Any, dtype: torch.dtype) -> Any:
    given = [_given(me, dtype, (part + 1,)) for part in range(me.size)]
    output = torch.empty(me.rank + 1, dtype=dtype, device=me.device)
    dist.reduce_scatter(output, given, op, group=me.group)
    return output, given


def _expect_uneven(rank: int, size: int, op: str, dtype: torch.dtype) -> Any:
    return (
        reduced(op, all_inputs(dtype, size, (rank + 1,))),
        [numbers(dtype, rank, (part + 1,)) for part in range(size)],
    )


def _reduce_scatter_tensor(me: Rank, op: Any, dtype: torch.dtype) -> Any:
    given = _given(me, dtype, (2 * me.size, 3))
    output = torch.empty(2, 3, dtype=dtype, device=me.device)
    dist.reduce_scatter_tensor(output, given, op, group=me.group)
    return output, given


def _expect_rows(rank: int, size: int, op: str, dtype: torch.dtype) -> Any:
    inputs = all_inputs(dtype, size, (2 * size, 3))
    return chunks(reduced(op, inputs), size)[rank], inputs[rank]


def _reduce_scatter_in_place(me: Rank, op: Any, dtype: torch.dtype) -> Any:
    """[guide]: in place where the output is the rank's part of the input."""
    given = _given(me, dtype, (2 * me.size, 3))
    output = given[2 * me.rank : 2 * me.rank + 2]
    dist.reduce_scatter_tensor(output, given, op, group=me.group)
    return output


def _reduce_scatter_coalesced(me: Rank, op: Any, dtype: torch.dtype) -> Any:
    given = [_given(me, dtype, (2 * me.size, 3)), _given(me, dtype, (me.size,))]
    outputs = [
        torch.empty(2, 3, dtype=dtype, device=me.device),
        torch.empty(1, dtype=dtype, device=me.device),
    ]
    with dist._coalescing_manager(group=me.group, device=me.device):
        for output, each in zip(outputs, given, strict=True):
            dist.reduce_scatter_tensor(output, each, op, group=me.group)
    return outputs


def _expect_coalesced_parts(rank: int, size: int, op: str, dtype: torch.dtype) -> Any:
    shapes = (2 * size, 3), (size,)
    return [chunks(reduced(op, all_inputs(dtype, size, shape)), size)[rank] for shape in shapes]


def _functional_reduce(me: Rank, op: Any, dtype: torch.dtype) -> Any:
    given = _given(me, dtype)
    return functional.all_reduce(given, _WORDS[str(op)], me.group).clone(), given


def _functional_scatter(me: Rank, op: Any, dtype: torch.dtype) -> Any:
    given = _given(me, dtype, (2 * me.size, 3))
    return functional.reduce_scatter_tensor(given, _WORDS[str(op)], 0, me.group).clone(), given


_WORDS = {str(getattr(Op, op)): op.lower() for op in OPS}


def _expect_all(rank: int, size: int, op: str, dtype: torch.dtype) -> Any:  # noqa: ARG001
    return reduced(op, all_inputs(dtype, size))


def _expect_two(rank: int, size: int, op: str, dtype: torch.dtype) -> Any:  # noqa: ARG001
    return [reduced(op, all_inputs(dtype, size)), reduced(op, all_inputs(dtype, size, (3,)))]


def _expect_new(rank: int, size: int, op: str, dtype: torch.dtype) -> Any:
    return reduced(op, all_inputs(dtype, size)), numbers(dtype, rank)


FORMS_OF_REDUCTIONS: dict[str, tuple[Any, Any]] = {
    "all_reduce": (_all_reduce, _expect_all),
    "all_reduce async": (_all_reduce_async, _expect_all),
    "all_reduce view": (_all_reduce_view, _expect_view),
    "all_reduce coalesced": (_all_reduce_coalesced, _expect_two),
    "reduce": (_reduce, _expect_reduce),
    "reduce_scatter": (_reduce_scatter, _expect_scattered),
    "reduce_scatter uneven": (_reduce_scatter_uneven, _expect_uneven),
    "reduce_scatter_tensor": (_reduce_scatter_tensor, _expect_rows),
    "reduce_scatter_tensor in place": (_reduce_scatter_in_place, lambda *given: _expect_rows(*given)[0]),
    "reduce_scatter_tensor coalesced": (_reduce_scatter_coalesced, _expect_coalesced_parts),
    "functional all_reduce": (_functional_reduce, _expect_new),
    "reduce_scatter functional": (_functional_scatter, _expect_rows),
}


def _nan_cells() -> Iterator[Cell]:
    """Yield the cells of NaN: MIN and MAX skip it, sums keep it [kernel: fminf, __hmin]."""

    def given(dtype: torch.dtype, rank: int) -> torch.Tensor:
        values = [NAN if rank else 1.0, 1.0 if rank else NAN, NAN, float("-inf"), float("inf"), -1.0 - rank]
        return torch.tensor(values).to(dtype)

    def cell(dtype: torch.dtype, op: str) -> Cell:
        def run(me: Rank) -> Any:
            tensor = given(dtype, me.rank).to(me.device)
            dist.all_reduce(tensor, getattr(Op, op), group=me.group)
            return tensor

        def expect(rank: int, size: int) -> Any:  # noqa: ARG001
            return reduced(op, [given(dtype, each) for each in range(size)])

        return Cell(f"NaN {op} {dtype}", "[kernel]", run, expect)

    for dtype, op in itertools.product(FLOATS, ("MIN", "MAX", "SUM")):
        yield cell(dtype, op)


def _raising(
    name: str, source: str, run: Callable[[Rank], Any], *wanted: tuple[type[Exception], str]
) -> Cell:
    """Return a cell that is refused; given two errors, the second is that of the second implementation."""
    return Cell(name, source, run, lambda *_: Refusal(*wanted[0], *wanted[-1]))


class Refusal(NamedTuple):
    """An error in place of a result."""

    kind: type[Exception]
    words: str
    second_kind: type[Exception]
    second_words: str


def _refused_reductions() -> Iterator[Cell]:
    for op in ("BAND", "BOR", "BXOR"):
        yield _raising(
            f"all_reduce {op}",
            "getNcclReduceOp in [legacy], [second]",
            lambda me, op=op: _all_reduce(me, getattr(Op, op), torch.int32),
            (ValueError, f"Cannot use ReduceOp.{op} with NCCL"),
        )
        yield _raising(
            f"all_reduce {op} int16",
            "getNcclDataType comes before getNcclReduceOp in [legacy], [second]",
            lambda me, op=op: _all_reduce(me, getattr(Op, op), torch.int16),
            (TypeError, "Input tensor data type is not supported for NCCL process group: Short"),
            (RuntimeError, "Unsupported tensor data type for NCCL"),
        )
    for op in ("PRODUCT", "MIN", "MAX", "BAND"):
        yield _raising(
            f"reduce {op} complex64",
            "isComplexViewAsRealAllowed in [legacy], [second]",
            lambda me, op=op: dist.reduce(
                _given(me, torch.complex64), group_dst=0, op=getattr(Op, op), group=me.group
            ),
            (RuntimeError, "reduce does not support this reduction on complex tensors"),
        )
    for form, (run, _) in FORMS_OF_REDUCTIONS.items():
        yield _raising(
            f"{form} AVG bool",
            "getNcclReduceOp in [legacy], [second]",
            lambda me, run=run: run(me, Op.AVG, torch.bool),
            (TypeError, "Cannot use ReduceOp.AVG with boolean inputs"),
        )
        yield _raising(
            f"{form} SUM int16",
            "getNcclDataType in [legacy], [second]",
            lambda me, run=run: run(me, Op.SUM, torch.int16),
            (TypeError, "Input tensor data type is not supported for NCCL process group: Short"),
            (RuntimeError, "Unsupported tensor data type for NCCL"),
        )
    for dtype in BYTES:
        yield _raising(
            f"all_reduce SUM {dtype}",
            "isUnsupportedFloat8 in [legacy], [second]",
            lambda me, dtype=dtype: _all_reduce(me, Op.SUM, dtype),
            (RuntimeError, "Unsupported Float8 type for NCCL reduction"),
        )
    yield _raising(
        "all_reduce strided",
        "check_gpu_single_tensor in [legacy], ensureTensorContiguous in [second]",
        lambda me: dist.all_reduce(_given(me, torch.float32)[::2], group=me.group),
        (ValueError, "Tensors must be contiguous"),
    )


def premultiplied() -> Iterator[Cell]:
    """Yield cells of PREMUL_SUM: the factor has the numbers' type [guide: ncclRedOpCreatePreMulSum]."""
    factor = 1 / 3

    def scaled(dtype: torch.dtype, rank: int, shape: tuple[int, ...] = (6,)) -> torch.Tensor:
        return numbers(dtype, rank, shape) * torch.tensor(factor).to(dtype)

    def expect(dtype: torch.dtype) -> Any:
        return lambda _, size: reduced("SUM", [scaled(dtype, rank) for rank in range(size)])

    for dtype in FLOATS[:3]:
        yield Cell(
            f"all_reduce PREMUL_SUM {dtype}",
            "unpackPreMulSum in [legacy], createPreMulSum in [second]",
            lambda me, dtype=dtype: _all_reduce(me, dist._make_nccl_premul_sum(factor), dtype),
            expect(dtype),
        )
        yield Cell(
            f"all_reduce PREMUL_SUM by a tensor {dtype}",
            "unpackPreMulSum in [legacy], createPreMulSum in [second]",
            lambda me, dtype=dtype: _all_reduce(
                me, dist._make_nccl_premul_sum(torch.tensor(factor).to(me.device, dtype)), dtype
            ),
            expect(dtype),
        )
        yield Cell(
            f"reduce_scatter_tensor PREMUL_SUM {dtype}",
            "unpackPreMulSum in [legacy], createPreMulSum in [second]",
            lambda me, dtype=dtype: _reduce_scatter_tensor(me, dist._make_nccl_premul_sum(factor), dtype),
            lambda rank, size, dtype=dtype: (
                chunks(reduced("SUM", [scaled(dtype, each, (2 * size, 3)) for each in range(size)]), size)[
                    rank
                ],
                numbers(dtype, rank, (2 * size, 3)),
            ),
        )
    yield _raising(
        "all_reduce PREMUL_SUM int32",
        "getNcclReduceOp in [legacy], RedOpRAII in [second]",
        lambda me: _all_reduce(me, dist._make_nccl_premul_sum(2.0), torch.int32),
        (TypeError, "PreMulSum Data type must be half, float, bfloat16 or double"),
        (RuntimeError, "PreMulSum Data type must be half, float, bfloat16 or double"),
    )
    yield _raising(
        "all_reduce PREMUL_SUM by a tensor of another type",
        "const_data_ptr in [legacy], createPreMulSum in [second]",
        lambda me: _all_reduce(
            me,
            dist._make_nccl_premul_sum(torch.ones(1, device=me.device, dtype=torch.float64)),
            torch.float32,
        ),
        (RuntimeError, "expected scalar type Float but found Double"),
        (RuntimeError, "PreMulSum factor type must match input data type"),
    )
    yield Cell(
        "all_reduce by a method of the group",
        "[c10d] ReduceOp.MAX is a RedOpType, which methods of ProcessGroup take",
        _by_method,
        lambda _, size: reduced("MAX", all_inputs(torch.int32, size)),
    )


def _by_method(me: Rank) -> Any:
    tensor = _given(me, torch.int32)
    me.group.allreduce([tensor], Op.MAX).wait()
    return tensor
