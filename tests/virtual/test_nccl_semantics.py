"""Collectives of "nccl" on virtual GPUs do what NCCL's sources say, not what gloo does.

The ranks are threads of this process, each with a group and a GPU of its own; `test_in_processes` runs the
same table under `dpdemo exec --ranks`.
"""

import itertools
import sys
import threading
import warnings
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from nccl_cells import Cell, Rank, Refusal, premultiplied, reductions
from nccl_copies import copies
from processes import run

from dpdemo.virtual.ops.collectives import second_groups
from dpdemo.virtual.process_groups import ProcessGroupNCCL, ProcessGroupNCCL2

pytestmark = [pytest.mark.usefixtures("gpus"), pytest.mark.filterwarnings("ignore:.*is deprecated")]
PATIENCE_S = 300
cpp = torch._C._distributed_c10d
TABLE = [*reductions(), *premultiplied(), *copies()]
_names = itertools.count()


def group_of(rank, size, store, name, implementation):
    """Return the group of one rank, as torch.distributed makes it."""
    group = dist.ProcessGroup(dist.PrefixStore(name, store), rank, size)
    backend = implementation(dist.PrefixStore(f"{name} below", store), rank, size)
    kind = dist.ProcessGroup.BackendType.NCCL
    group._set_default_backend(kind)
    group._register_backend(torch.device("cuda"), kind, backend)
    group._set_group_name(f"{name} of {rank}")
    cpp._register_process_group(group.group_name, group)
    world = dist.distributed_c10d._world
    world.pg_map[group] = "nccl", dist.PrefixStore(name, store)
    world.pg_names[group] = group.group_name
    world.pg_group_ranks[group] = {each: each for each in range(size)}
    return group


class Ranks:
    """Threads that are ranks of one group."""

    def __init__(self, size, implementation):
        store, name = dist.HashStore(), f"threads {next(_names)}"
        self.size, self.groups = size, [None] * size

        def make(rank):
            self.groups[rank] = group_of(rank, size, store, name, implementation)

        self.each(make)

    def each(self, function):
        failed = []

        def work(rank):
            try:
                function(rank)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a rank hangs"
        if failed:
            raise failed[0]

    def outcomes(self, cell):
        """Return what each rank holds after a cell's collective."""
        found = [None] * self.size

        def work(rank):
            device = torch.device("cuda", rank)
            torch.cuda.set_device(device)
            me = Rank(rank, self.size, self.groups[rank], device)
            found[rank] = outcome(cell, me)

        self.each(work)
        return found

    def close(self):
        """Forget the groups."""
        world = dist.distributed_c10d._world
        for group in self.groups:
            cpp._unregister_process_group(group.group_name)
            for known in (world.pg_map, world.pg_names, world.pg_group_ranks):
                known.pop(group)
        self.groups.clear()


def outcome(cell, me):
    """Run a cell as one rank; an error is its outcome, too."""
    try:
        return cell.run(me)
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        # PyTorch leaves a group in its coalescing state when an error ends batch_isend_irecv
        dist.distributed_c10d._world.pg_coalesce_state.pop(me.group, None)
        return error


def differences(cell, rank, size, found, is_second=False):
    """Yield the differences between a rank's outcome and the table."""
    wanted = cell.expect(rank, size)
    if isinstance(wanted, Refusal):
        kind, words = wanted[2:] if is_second else wanted[:2]
        if type(found) is not kind or not str(found).startswith(words):
            yield f"{cell.name}, rank {rank}: {kind.__name__}: {words} wanted, got {found!r}"
    elif isinstance(found, Exception):
        yield f"{cell.name}, rank {rank}: {type(found).__name__}: {found}"
    else:
        got, want = leaves(found), leaves(wanted)
        if len(got) != len(want) or not all(map(same, got, want, [size] * len(got))):
            yield f"{cell.name}, rank {rank} of {size}: {want} wanted, got {got}"


def leaves(value):
    """Return the parts of nested lists."""
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, (list, tuple)) else [value]


def same(got, want, size):
    """Return whether numbers are alike: bit by bit with two ranks, whose order of sums is no matter."""
    if not isinstance(want, torch.Tensor):
        return got == want
    if got.device.type != "cuda" or got.dtype is not want.dtype or got.shape != want.shape:
        return False
    got = got.cpu()
    if not got.numel():
        return True
    if size == 2 or not (want.dtype.is_floating_point or want.dtype.is_complex):
        bits = [
            torch.where(part.isnan(), NAN_BITS.to(part.dtype), part) if part.is_floating_point() else part
            for part in (got, want)
            if part.element_size() > 1
        ] or [got, want]
        got, want = (part.contiguous().view(torch.uint8) for part in bits)
        return torch.equal(got, want)
    if want.element_size() == 1:
        got, want = got.float(), want.float()
        return torch.allclose(got, want, rtol=0.13, equal_nan=True)
    return torch.allclose(got, want, rtol=1e-2 if want.element_size() == 2 else 1e-6, equal_nan=True)


NAN_BITS = torch.tensor(float("nan"))


@pytest.fixture(params=[ProcessGroupNCCL, ProcessGroupNCCL2], ids=["first", "second"])
def two(request):
    """Two ranks, by PyTorch's first implementation and by that of torch 2.15."""
    ranks = Ranks(2, request.param)
    yield ranks
    ranks.close()


def compare(ranks, cells):
    found = []
    for cell in cells:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = ranks.outcomes(cell)
        is_second = ranks.groups[0].group_name in second_groups
        for rank, result in enumerate(results):
            found.extend(differences(cell, rank, ranks.size, result, is_second))
    assert not found, "\n".join(found)


PARTS = {
    "reductions": lambda cell: cell.name.startswith(("all_reduce", "NaN")),
    "reduce": lambda cell: cell.name.startswith("reduce ") or "functional" in cell.name,
    "reduce_scatter": lambda cell: cell.name.startswith("reduce_scatter") and "functional" not in cell.name,
}


@pytest.mark.parametrize("part", [*PARTS, "copies"])
def test_two_ranks_hold_what_nccl_leaves(two, part):
    is_in = PARTS.get(part) or (lambda cell: not any(each(cell) for each in PARTS.values()))
    compare(two, [cell for cell in TABLE if is_in(cell)])


def test_ranks_may_join_again_what_they_have_left(two):
    """With the same name in the same store, which still has the addresses of the first group."""
    store, sums = dist.HashStore(), [[], []]
    left = threading.Barrier(2)

    def work(rank):
        for _ in range(3):
            group = ProcessGroupNCCL(store, rank, 2)
            rows = torch.full((2,), rank + 1.0, device=f"cuda:{rank}")
            group.allreduce([rows]).wait()
            sums[rank].append(rows.tolist())
            left.wait(PATIENCE_S)

    two.each(work)
    assert sums == [[[3.0, 3.0]] * 3] * 2


@pytest.mark.parametrize("implementation", [ProcessGroupNCCL, ProcessGroupNCCL2])
def test_the_next_group_of_a_name_receives_by_its_own_backend(implementation, monkeypatch):
    """A default group has the same name after `destroy_process_group`, and a reader outlives its receives."""
    monkeypatch.setattr(f"{__name__}._names", itertools.repeat("the same"))

    def run(me):
        got = torch.empty(2, device=me.device)
        works = [
            dist.isend(torch.ones(2, device=me.device), group=me.group, group_dst=1 - me.rank),
            dist.irecv(got, group=me.group, group_src=1 - me.rank),
        ]
        for work in works:
            work.wait(timedelta(seconds=PATIENCE_S / 10))
        return got.tolist()

    for _ in range(2):
        ranks = Ranks(2, implementation)
        assert ranks.outcomes(Cell("again", "", run, None)) == [[1.0, 1.0]] * 2
        ranks.close()


def test_a_callback_of_a_collective_may_synchronise(two):
    """PowerSGD's hook does, on the thread of gloo that has yet to end the collective."""
    is_waited_for, found = threading.Event(), [None, None]

    def work(rank):
        torch.cuda.set_device(rank)
        rows = torch.full((2,), rank + 1.0, device="cuda")
        two.groups[rank].allreduce(rows.clone()).wait()  # at the first one, ranks compare their GPUs
        if rank:
            is_waited_for.wait(PATIENCE_S)
        begun = two.groups[rank].allreduce(rows)
        done = begun.get_future().then(lambda future: (torch.cuda.synchronize(), future.value()[0] * 10)[1])
        is_waited_for.set()
        found[rank] = done.wait().tolist()

    two.each(work)
    assert found == [[30.0, 30.0]] * 2


def begun(me):
    """Yield the work of each collective, and the tensors that it writes."""

    def rows():
        return torch.arange(4.0, device=me.device) + me.rank

    def begin(function, *tensors, written=0, **options):
        work = function(*tensors, group=me.group, async_op=True, **options)
        return work, leaves([] if tensors[written] is None else tensors[written])

    yield begin(dist.all_reduce, rows())
    yield begin(dist.broadcast, rows(), group_src=1)
    yield begin(dist.reduce, rows(), group_dst=1)
    yield begin(dist.reduce, rows().half(), group_dst=1, op=dist.ReduceOp.MAX)
    yield begin(dist.all_gather, [rows(), rows()], rows())
    yield begin(dist.all_gather_into_tensor, rows(), rows()[:2])
    yield begin(dist.reduce_scatter, rows(), [rows(), rows()])
    yield begin(dist.reduce_scatter_tensor, rows()[:2], rows())
    yield begin(dist.reduce_scatter_tensor, rows()[:2].half(), rows().half(), op=dist.ReduceOp.MAX)
    yield begin(dist.all_to_all_single, rows(), rows())
    yield begin(dist.all_to_all, [rows(), rows()], [rows(), rows()])
    yield begin(dist.scatter, rows(), [rows(), rows()] if me.rank == 0 else None, group_src=0)
    yield begin(dist.gather, rows(), [rows(), rows()] if me.rank == 0 else None, written=1, group_dst=0)
    received = rows()
    yield dist.isend(rows(), group=me.group, group_dst=1 - me.rank), []
    yield dist.irecv(received, group=me.group, group_src=1 - me.rank), [received]


def test_the_future_of_a_collective_has_the_tensors_that_it_writes(two):
    """WorkNCCL::getFuture; gloo's reduce_scatter has none, and its send's would end in `wait` alone."""

    def run(me):
        for work, outputs in list(begun(me)):  # sends wait for their peers
            result = work.get_future().then(lambda done: done.value()).wait()
            assert isinstance(result, list)
            values = torch.cat([each.flatten() for each in leaves(result)]) if outputs else None
            assert not outputs or torch.equal(values, torch.cat([each.flatten() for each in outputs]))
        return me.rank

    assert two.outcomes(Cell("futures", "", run, None)) == [0, 1]


def test_the_future_of_an_all_gather_has_one_tensor(two):
    """ProcessGroupNCCL::allgather runs `collective` on flattened outputs, as quantization hooks expect."""

    def run(me):
        outputs = [torch.empty(3, device=me.device) for _ in range(2)]
        work = dist.all_gather(outputs, torch.full((3,), me.rank + 1.0, device=me.device), me.group, True)
        (whole,) = work.get_future().wait()
        assert whole.device == me.device
        return whole.tolist(), [each.tolist() for each in outputs]

    assert two.outcomes(Cell("all_gather", "", run, None)) == [([[1.0] * 3, [2.0] * 3],) * 2] * 2


def test_an_even_exchange_cuts_elements_or_rows(two):
    """alltoall_base in the first implementation has no check; the second one calls checkSplitSizes."""

    def run(me):
        output = torch.empty(1, 4, device=me.device)
        dist.all_to_all_single(output, torch.arange(4.0, device=me.device).view(1, 4), group=me.group)
        return output

    found = two.outcomes(Cell("all_to_all_single of one row", "", run, None))
    if two.groups[0].group_name in second_groups:
        assert all("does not divide equally" in str(error) for error in found)
    else:
        assert [each.tolist() for each in found] == [[[0.0, 1.0] * 2], [[2.0, 3.0] * 2]]


def test_a_rank_alone_copies_its_part_without_the_factor():
    """ProcessGroupNCCL::_reduce_scatter_base since torch 2.11; an all_reduce has the factor."""
    alone = Ranks(1, ProcessGroupNCCL)

    def run(me):
        given, output = torch.ones(2, device=me.device), torch.empty(2, device=me.device)
        half = dist._make_nccl_premul_sum(0.5)
        dist.reduce_scatter_tensor(output, given, half, group=me.group)
        dist.all_reduce(given, half, group=me.group)
        return output.tolist(), given.tolist()

    assert alone.outcomes(Cell("alone", "", run, None)) == [([1.0, 1.0], [0.5, 0.5])]
    alone.close()


def test_each_cell_has_a_source_and_a_name_of_its_own():
    assert all(cell.source.count("[") for cell in TABLE)
    assert len({cell.name for cell in TABLE}) == len(TABLE)


_PROGRAM = """
import sys, warnings
import torch, torch.distributed as dist
sys.path[:0] = {paths!r}
import test_nccl_semantics as table
from nccl_cells import Rank
from dpdemo.virtual.ops.collectives import second_groups

warnings.simplefilter("ignore")
dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
pair = dist.new_group([0, 2])
found = []
for group, members in ((dist.group.WORLD, [0, 1, 2]), (pair, [0, 2])):
    if rank not in members:
        continue
    me = Rank(members.index(rank), len(members), group, torch.device("cuda", rank))
    for cell in table.TABLE:
        result = table.outcome(cell, me)
        is_second = group.group_name in second_groups
        found += table.differences(cell, me.rank, me.size, result, is_second)
print("\\n".join(found) or f"rank {{rank}}: all as NCCL", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_in_processes(tmp_path):
    """Three ranks, and a group of two of them."""
    here = Path(__file__).parent
    program = tmp_path / "table.py"
    program.write_text(_PROGRAM.format(paths=[str(here), str(here.parent)]))
    done = run([sys.executable, "-m", "dpdemo", "exec", "--quiet", "--ranks", "3", str(program)])
    assert done.stdout.count("all as NCCL") == 3, done.stdout + done.stderr
