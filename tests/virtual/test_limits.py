"""GPUs can be full: what does not fit is CUDA's own error, and memory that comes back can be used again."""

import re

import pytest
import torch
from fastpart import mostly_slow
from torch import nn

from dpdemo.virtual import is_active, virtual_gpus

MIB = 2**20
STORAGES = pytest.mark.parametrize("storage", ["cpu", "meta"])


FULL = (
    "CUDA out of memory. Tried to allocate 52.00 MiB. GPU 1 has a total capacity of 100.00 MiB of which "
    "40.00 MiB is free. Including non-PyTorch memory, this process has 60.00 MiB memory in use. Of the "
    "allocated memory 60.00 MiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated. "
    "If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
    "Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
    "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
)


def bytes_of(mib, device="cuda"):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device=device)


@pytest.mark.parametrize(
    ("memory", "totals"),
    [
        ("24GiB", [24 * 2**30] * 3),
        (4096, [4096] * 3),
        (["1GiB", "512MiB", 1000], [2**30, 2**29, 1000]),
        (("1KiB", "2KiB", "3KiB"), [1024, 2048, 3072]),
        (None, [80 * 2**30] * 3),
    ],
)
def test_a_size_for_all_or_one_for_each(memory, totals):
    with virtual_gpus(3, memory=memory):
        assert [torch.cuda.get_device_properties(index).total_memory for index in range(3)] == totals
        assert [torch.cuda.mem_get_info(index) for index in range(3)] == [(total, total) for total in totals]


@pytest.mark.parametrize("memory", [["1GiB"], "lots"])
def test_what_is_no_size_is_an_error_before_anything_is_replaced(memory):
    with pytest.raises(ValueError, match=r"^expected (one|a) size"), virtual_gpus(3, memory=memory):
        pass
    assert not is_active()


@STORAGES
def test_what_does_not_fit_is_cudas_error_in_its_own_words(storage):
    with virtual_gpus(2, memory=["1GiB", "100MiB"], storage=storage):
        kept = bytes_of(60, "cuda:1")
        with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
            bytes_of(50.5, "cuda:1")
        assert str(caught.value) == FULL
        assert isinstance(caught.value, torch.OutOfMemoryError)
        assert isinstance(caught.value, RuntimeError)
        del kept


@pytest.mark.parametrize(
    ("nbytes", "tried"),
    [(1, "2.00 MiB"), (MIB, "2.00 MiB"), (MIB + 1, "20.00 MiB"), (10 * MIB - 512, "20.00 MiB"),
     (10 * MIB, "10.00 MiB"), (11 * MIB, "12.00 MiB"), (3 * 2**30, "3.00 GiB")],
)  # fmt: skip
def test_the_error_tells_the_segment_that_the_allocator_would_ask_for(nbytes, tried):
    """(`get_allocation_size`, c10/cuda/CUDACachingAllocator.cpp)."""
    with virtual_gpus(1, memory=512, storage="meta"):
        full = torch.empty(512, dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.OutOfMemoryError, match=re.escape(f"Tried to allocate {tried}. GPU 0")):
            torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        del full


@STORAGES
def test_the_last_byte_can_be_used_and_no_more(storage):
    with virtual_gpus(1, memory="1MiB", storage=storage) as gpus:
        all_of_it = bytes_of(1)
        assert torch.cuda.mem_get_info() == (0, MIB)
        with pytest.raises(torch.OutOfMemoryError, match="0 bytes is free"):
            bytes_of(1 / MIB)
        assert gpus.live_bytes(0) == gpus.peak_bytes(0) == MIB
        del all_of_it


@STORAGES
def test_memory_comes_back_when_tensors_die(storage):
    def scope():
        local = bytes_of(0.9)
        return local.nbytes

    with virtual_gpus(1, memory="1MiB", storage=storage):
        for _ in range(3):
            scope()
        tensor = bytes_of(0.9)
        with pytest.raises(torch.OutOfMemoryError):
            bytes_of(0.9)
        del tensor
        tensor = bytes_of(0.9)
        tensor = bytes_of(0)
        assert len(tensor) == 0
        assert torch.cuda.mem_get_info() == (MIB, MIB)


@STORAGES
def test_a_step_that_failed_gives_its_memory_back_and_half_the_batch_fits(storage):
    """The usual loop: catch, halve, try again."""
    tried, did = [], False
    with virtual_gpus(1, memory="3MiB", storage=storage):
        model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
        before = torch.cuda.memory_allocated()
        rows = 1024
        while not did:
            try:
                tried.append(rows)
                model(torch.ones(rows, 64).cuda()).sum().backward()
                did = True
            except torch.cuda.OutOfMemoryError:
                rows //= 2
            # Only out here: while an error is handled, its traceback keeps all that there was
            model.zero_grad()
            assert did or torch.cuda.memory_allocated() == before
        assert tried == [1024, 512]
        assert torch.cuda.memory_stats()["num_ooms"] == 1


@STORAGES
@pytest.mark.parametrize(
    "allocate",
    mostly_slow(
        [
            lambda big: big + 1,
            lambda big: big.clone(),
            lambda big: big.to(torch.float64),
            lambda big: big.cpu().cuda(),
            torch.zeros_like,
            lambda big: torch.cat([big, big]),
            lambda big: big.repeat(2),
            lambda big: nn.Parameter(big.detach().clone()),
            lambda big: torch.ones(0, device="cuda").resize_(len(big)),
            lambda big: torch.nn.functional.dropout(big, 0.5),
            lambda big: big.untyped_storage().clone(),
        ],
        3,
    ),
)
def test_every_way_to_memory_has_the_limit(storage, allocate):
    with virtual_gpus(1, memory="1MiB", storage=storage):
        big = torch.ones(MIB // 4 - 256, device="cuda")
        before = torch.cuda.memory_allocated()
        with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
            allocate(big)
        assert torch.cuda.memory_allocated() == before


@pytest.mark.filterwarnings("ignore:\\n.*There is an imbalance between your GPUs")
@STORAGES
def test_a_replica_that_does_not_fit_is_data_parallels_error(storage):
    with virtual_gpus(3, memory=["1GiB", "1GiB", "1MiB"], storage=storage):
        model = nn.DataParallel(nn.Sequential(nn.Linear(10, 1000), nn.ReLU()).cuda())
        small = model(torch.ones(30, 10))
        assert small.shape == (30, 1000)
        with pytest.raises(torch.OutOfMemoryError) as caught:
            model(torch.ones(900, 10))
    message = str(caught.value)
    assert message.startswith("Caught OutOfMemoryError in replica 2 on device 2.\n")
    assert (
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 2 has a total capacity of 1024.00 KiB"
        in message
    )


@STORAGES
def test_gpu_0_fills_up_while_the_others_are_half_empty(storage):
    """DataParallel's most reported trouble: the loss needs all outputs on one GPU."""
    with virtual_gpus(4, memory="8MiB", storage=storage):
        model = nn.DataParallel(nn.Linear(10, 2000).cuda())
        output = model(torch.ones(400, 10))
        with pytest.raises(torch.OutOfMemoryError, match=r"^CUDA out of memory.*GPU 0 has"):
            torch.nn.functional.cross_entropy(output * 2, torch.zeros(400, dtype=torch.long).cuda())
        assert all(torch.cuda.mem_get_info(index)[0] > 7 * MIB for index in (1, 2, 3))


@pytest.mark.parametrize("name", ["empty", "zeros", "rand"])
def test_what_neither_the_gpu_nor_the_host_can_hold_is_cudas_error(name: str) -> None:
    with virtual_gpus(2) as gpus:
        with pytest.raises(
            torch.OutOfMemoryError, match=r"Tried to allocate 3725290.30 GiB. GPU 1 has a total"
        ):
            getattr(torch, name)(10**15, device="cuda:1")
        assert gpus.live_bytes(1) == 0
        assert torch.cuda.memory_stats(1)["num_ooms"] == 1
        with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
            getattr(torch, name)(10**15)
