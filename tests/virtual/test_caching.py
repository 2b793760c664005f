"""The simulated allocator keeps the rules of PyTorch's: worked out by hand, and kept for any sequence."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.virtual import virtual_gpus
from dpdemo.virtual.caching import CachingAllocator

MIB = 2**20


def blocks(first):
    """Return the blocks of a segment in order."""
    found, block = [], first
    while block is not None:
        found.append(block)
        block = block.following
    return found


def test_small_requests_share_a_segment_of_two_mebibytes():
    allocator = CachingAllocator()
    for _ in range(2 * MIB // 512):
        allocator.allocate(512)
    assert allocator.reserved_bytes == 2 * MIB
    allocator.allocate(512)
    assert allocator.reserved_bytes == 4 * MIB


def test_middling_requests_share_segments_of_twenty_and_large_ones_are_rounded_to_two():
    allocator = CachingAllocator()
    allocator.allocate(6 * MIB)
    assert allocator.reserved_bytes == 20 * MIB
    allocator.allocate(9 * MIB)
    assert allocator.reserved_bytes == 20 * MIB
    allocator.allocate(11 * MIB)
    assert allocator.reserved_bytes == 32 * MIB


def test_what_is_free_is_used_again_and_too_small_a_rest_is_not_cut_off():
    allocator = CachingAllocator()
    first = allocator.allocate(30 * MIB)
    allocator.free(first)
    again = allocator.allocate(29 * MIB)  # 1 MiB would be left: it stays with the block
    assert (again.size, allocator.reserved_bytes) == (30 * MIB, 30 * MIB)
    allocator.free(again)
    assert allocator.allocate(12 * MIB).size == 12 * MIB
    assert allocator.allocate(18 * MIB).size == 18 * MIB
    assert allocator.reserved_bytes == 30 * MIB


def test_holes_are_reserved_memory_that_a_larger_request_cannot_use():
    allocator = CachingAllocator()
    whole = allocator.allocate(40 * MIB)
    allocator.free(whole)
    four = [allocator.allocate(10 * MIB) for _ in range(4)]
    allocator.free(four[0])
    allocator.free(four[2])
    allocator.allocate(20 * MIB)
    assert allocator.reserved_bytes == 60 * MIB
    allocator.free(four[1])  # now three neighbours are one
    allocator.allocate(30 * MIB)
    assert allocator.reserved_bytes == 60 * MIB


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 60_000), st.integers(0, 50)), max_size=60))
def test_blocks_fill_their_segments_without_overlap_and_free_neighbours_are_joined(steps):
    allocator = CachingAllocator()
    used = []
    for is_allocation, size, place in steps:
        if is_allocation or not used:
            used.append(allocator.allocate(size * 512))
        else:
            allocator.free(used.pop(place % len(used)))
    found, address = set(), 0
    for first in allocator.segments:
        was_free = False
        for block in blocks(first):
            assert block.address == address
            assert not (block.is_free and was_free)
            assert block.is_free or block.size >= block.requested
            address, was_free = address + block.size, block.is_free
            if not block.is_free:
                found.add(id(block))
    assert address == allocator.reserved_bytes
    assert found == {id(block) for block in used}


def test_a_block_goes_back_to_the_stream_that_it_was_taken_on():
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(4 * 2**20, stream=1))
    allocator.allocate(4 * 2**20)
    assert allocator.reserved_bytes == 40 * 2**20
    allocator.allocate(4 * 2**20, stream=1)
    assert allocator.reserved_bytes == 40 * 2**20


def test_a_program_on_a_stream_of_its_own_has_segments_of_its_own():
    with virtual_gpus(1) as gpus:
        allocator = gpus.recorder.allocators[0]
        torch.empty(2**20, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.empty(2**20, device="cuda")
        assert allocator.reserved_bytes == 40 * 2**20
