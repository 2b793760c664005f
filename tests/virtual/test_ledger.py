"""Bytes are counted by storage, in the caching allocator's blocks, and come back when the storage dies."""

import gc
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpdemo.virtual import separate_ledger
from dpdemo.virtual.blocks import BLOCK_BYTES, Kind, rounded
from dpdemo.virtual.ledger import Allocation, Ledger

NUM_GPUS = 2


@pytest.fixture(autouse=True)
def _followed(gpus):
    """The figures by kind are followed from when they are first asked for."""
    gpus.live_by_kind(0)


def test_sizes_are_rounded_up_to_blocks():
    assert BLOCK_BYTES == 512
    assert [rounded(size) for size in (0, 1, 512, 513, 1024)] == [0, 512, 512, 1024, 1024]


def test_views_and_aliases_of_a_storage_count_once(gpus):
    tensor = torch.zeros(256, device="cuda:2")
    others = [tensor[1:], tensor.detach(), tensor.view(16, 16), nn.Parameter(tensor), tensor.data]
    assert gpus.live_bytes(2) == 1024
    del tensor
    assert gpus.live_bytes(2) == 1024
    others.clear()
    assert gpus.live_bytes(2) == 0
    assert gpus.peak_bytes(2) == 1024


def test_a_storage_that_grows_in_place_is_followed(gpus):
    tensor = torch.empty(0, device="cuda:1")
    assert gpus.live_bytes(1) == 0
    torch.add(torch.zeros(256, device="cuda:1"), 1, out=tensor)
    assert gpus.live_bytes(1) == 1024
    tensor.resize_(512)
    assert gpus.live_bytes(1) == 2048
    del tensor
    assert gpus.live_bytes(1) == 0


def test_replicas_are_held_while_the_graph_lives_and_freed_after_backward(gpus):
    model = nn.DataParallel(nn.Linear(128, 128).cuda())
    weights = 128 * 128 * 4 + 512
    batch = torch.ones(4, 128, device="cuda").requires_grad_()
    gpus.reset_peaks()
    output = model(batch)
    assert gpus.live_bytes(3) >= weights  # kept for the gradient of the input
    assert gpus.bytes_moved_between[0, 3] == weights + 128 * 4
    output.sum().backward()
    del output
    gc.collect()
    assert [gpus.live_bytes(index) for index in (1, 2, 3)] == [0, 0, 0]
    assert gpus.peak_bytes(3) > weights


def test_sparse_tensors_count_their_parts(gpus):
    layer = nn.Embedding(100, 64, sparse=True).cuda()
    before = gpus.live_bytes(0)
    layer(torch.tensor([1, 2, 2], device="cuda")).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.is_sparse
    assert layer.weight.grad.is_cuda
    assert gpus.live_bytes(0) > before


def test_a_separate_ledger_keeps_all_off_the_other_one(gpus):
    before = torch.ones(128, device="cuda:1")
    with separate_ledger() as aside:
        inside = torch.ones(1024).cuda(1)
        del before  # what is freed is taken off where it was put on
        assert (aside.live_bytes(1), gpus.live_bytes(1)) == (4096, 0)
        assert torch.cuda.max_memory_allocated(1) == aside.peak_bytes(1) == 4096
    assert (gpus.peak_bytes(1), torch.cuda.max_memory_allocated(1)) == (512, 512)
    assert (gpus.bytes_moved.host_to_device, aside.bytes_moved.host_to_device) == (0, 4096)
    del inside
    assert (aside.live_bytes(1), gpus.live_bytes(1)) == (0, 0)


def test_the_ledger_is_back_after_an_exception(gpus):
    with pytest.raises(KeyboardInterrupt), separate_ledger():
        raise KeyboardInterrupt
    kept = torch.ones(128, device="cuda:1")
    assert gpus.live_bytes(1) == kept.nbytes


@dataclass
class Block:
    """One block of the oracle; its kind stays what it was last once it is freed."""

    index: int
    nbytes: int
    kind: Kind = Kind.TEMPORARY
    is_live: bool = True


@dataclass
class Oracle:
    """A ledger that notes every block that lives at each peak, and asks at the end what they were for."""

    blocks: list[Block] = field(default_factory=list)
    peaks: dict[int, list[Block]] = field(default_factory=lambda: {index: [] for index in range(NUM_GPUS)})

    def live(self, index):
        return [block for block in self.blocks if block.is_live and block.index == index]

    def allocate(self, index, nbytes):
        block = Block(index, nbytes)
        self.blocks.append(block)
        if total(self.live(index)) > total(self.peaks[index]):
            self.reset_peak(index)
        return block

    def reset_peak(self, index):
        self.peaks[index] = self.live(index)

    def keep_temporaries(self):
        for block in self.blocks:
            if block.is_live and block.kind is Kind.TEMPORARY:
                block.kind = Kind.ACTIVATION


def total(blocks):
    return sum(block.nbytes for block in blocks)


def by_kind(blocks):
    return [sum(block.nbytes for block in blocks if block.kind is kind) for kind in Kind]


MARKS = [kind for kind in Kind if kind is not Kind.TEMPORARY]  # which is what all begin as
places = st.integers(0, 99)
gpu = st.integers(0, NUM_GPUS - 1)
sizes = st.integers(0, 2000)
steps = st.one_of(
    st.tuples(st.just("allocate"), gpu, sizes),
    st.tuples(st.just("allocate"), gpu, sizes),
    st.tuples(st.just("free"), places, sizes),
    st.tuples(st.just("mark"), places, st.sampled_from(MARKS)),
    st.tuples(st.just("resize"), places, sizes),
    st.tuples(st.just("keep"), places, sizes),
    st.tuples(st.just("reset"), gpu, sizes),
)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(steps, max_size=40))
def test_the_peak_is_told_as_if_all_that_lived_then_had_been_noted(program):
    ledger, oracle = Ledger(NUM_GPUS), Oracle()
    accounts = ledger.open_accounts()
    held = []
    for name, number, value in program:
        run(name, number, value, ledger, oracle, held)
        for index in range(NUM_GPUS):
            assert ledger.live[index] == total(oracle.live(index))
            assert ledger.peak[index] == total(oracle.peaks[index])
            assert accounts.gpus[index].held == by_kind(oracle.live(index))
            assert accounts.peak_by_kind(index) == by_kind(oracle.peaks[index])
            assert sum(accounts.peak_by_kind(index)) == ledger.peak[index]


def run(  # noqa: PLR0917 - a step, and what it is done to
    name, number, value, ledger, oracle, held
):
    """Do one step to the ledger and to the oracle."""
    if name == "allocate":
        held.append((Allocation(ledger, number, value), oracle.allocate(number, rounded(value))))
    elif name == "keep":
        ledger.open_accounts().keep_temporaries()
        oracle.keep_temporaries()
    elif name == "reset":
        ledger.reset_peak(number)
        oracle.reset_peak(number)
    elif held:
        place = number % len(held)
        allocation, block = held.pop(place)
        if name == "free":
            block.is_live = False
            return
        if name == "mark":
            allocation.mark(value)
            block.kind = value
        else:
            allocation.resize(value)
            grown = oracle.allocate(block.index, rounded(value))
            grown.kind, block.is_live = block.kind, False
            block = grown
        held.append((allocation, block))


def test_a_peak_is_told_with_the_phase_in_which_it_came(gpus):
    gpus.phase = "forward"
    first = torch.zeros(1000, device="cuda:1")
    gpus.phase = "backward"
    second = torch.zeros(1000, device="cuda:1")
    gpus.phase = "step"
    del second
    third = torch.zeros(10, device="cuda:1")
    assert gpus.peak_phase(1) == "backward"
    assert gpus.peak_phase(0) == ""
    gpus.reset_peaks()
    assert gpus.peak_phase(1) == "step"
    assert gpus.phase == "step"
    assert gpus.peak_bytes(1) == gpus.live_bytes(1) == first.nbytes // 512 * 512 + 512 + 512
    del third


def test_reset_peaks_begins_again_from_what_is_live(gpus):
    kept = torch.zeros(200, device="cuda:0")
    del kept
    kept = torch.zeros(100, device="cuda:0")
    torch.zeros(5000, device="cuda:0")
    gpus.reset_peaks()
    assert gpus.peak_bytes(0) == 512
    assert gpus.peak_by_kind(0)["temporaries"] == 512
    more = torch.zeros(100, device="cuda:0")
    assert gpus.peak_bytes(0) == 1024
    del kept, more
    assert gpus.peak_by_kind(0)["temporaries"] == 1024


def test_growing_in_place_needs_both_sizes_at_once_and_keeps_the_kind(gpus):
    weight = nn.Parameter(torch.zeros(128, device="cuda:0"))
    holder = nn.Module()
    holder.register_parameter("weight", weight)
    gpus.reset_peaks()
    weight.data.resize_(512)
    weight.data.zero_()
    assert gpus.live_by_kind(0)["parameters"] == 2048
    assert gpus.peak_bytes(0) == 512 + 2048


def test_accounts_take_over_what_was_there_without_bytes_too():
    ledger = Ledger(1)
    empty, full = Allocation(ledger, 0, 0), Allocation(ledger, 0, 600)
    accounts = ledger.open_accounts()
    empty.mark(Kind.PARAMETER)
    full.mark(Kind.PARAMETER)
    assert accounts.gpus[0].held[Kind.PARAMETER] == sum(accounts.gpus[0].held) == 1024
    empty.resize(1)
    del full
    assert accounts.gpus[0].held[Kind.PARAMETER] == ledger.live[0] == 512
