"""What `torch.cuda.memory_stats` counts: blocks taken and given back, by pool."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("gpus")


def on_gpu(num_bytes):
    return torch.empty(num_bytes, dtype=torch.uint8, device="cuda:1")


def counts(statistic):
    found = torch.cuda.memory_stats(1)
    return [found[f"{statistic}.{name}"] for name in ("current", "peak", "allocated", "freed")]


def test_nothing_is_known_before_cuda_is_initialised():
    assert torch.cuda.memory_stats(1) == {}
    assert torch.cuda.memory_allocated(1) == 0
    assert not torch.cuda.is_initialized()


@pytest.fixture
def _asked(gpus):  # noqa: ARG001 - after the block is open
    """Pools and totals are counted from the first question on."""
    torch.cuda.init()
    torch.cuda.memory_stats(1)


@pytest.mark.usefixtures("_asked")
def test_blocks_are_counted_as_they_come_and_go_by_pool():
    kept = on_gpu(1), on_gpu(2**20), on_gpu(2**20 + 1)
    first = on_gpu(100)
    del first
    nothing = on_gpu(0)
    for statistic in ("allocation", "active"):
        assert counts(f"{statistic}.all") == [3, 4, 4, 1]
        assert counts(f"{statistic}.small_pool") == [2, 3, 3, 1]
        assert counts(f"{statistic}.large_pool") == [1, 1, 1, 0]
    large = 2**20 + 512
    assert counts("allocated_bytes.all") == [
        2**20 + 512 + large,
        2**20 + 1024 + large,
        2**20 + 1024 + large,
        512,
    ]
    assert counts("allocated_bytes.large_pool") == [large, large, large, 0]
    assert torch.cuda.memory_stats(0)["allocation.all.allocated"] == 0
    del kept, nothing
    assert counts("allocation.all") == [0, 4, 4, 4]


@pytest.mark.usefixtures("_asked")
def test_peaks_and_totals_start_again_where_a_program_resets_them():
    kept, dropped = on_gpu(1), on_gpu(1)
    del dropped
    torch.cuda.reset_peak_memory_stats(1)
    assert counts("allocation.all") == [1, 1, 2, 1]
    torch.cuda.reset_accumulated_memory_stats(1)
    assert counts("allocation.all") == [1, 1, 0, 0]
    assert counts("allocated_bytes.small_pool") == [512, 512, 0, 0]
    del kept
    assert counts("allocation.all") == [0, 1, 0, 1]


def test_the_summary_has_a_line_for_them():
    kept = [on_gpu(1) for _ in range(7)]
    line = next(
        line for line in torch.cuda.memory_summary(1).splitlines() if line.startswith("| Allocations")
    )
    assert [part.strip() for part in line.split("|")[1:-1]] == ["Allocations", "7", "7", "7", "0"]
    del kept


@pytest.mark.parametrize(
    "ask",
    [
        torch.cuda.memory_allocated,
        torch.cuda.reset_peak_memory_stats,
        torch.cuda.reset_accumulated_memory_stats,
        torch.cuda.memory_summary,
    ],
)
def test_a_gpu_that_is_not_there_is_the_allocators_own_error(ask):
    torch.cuda.init()
    with pytest.raises(RuntimeError, match=r"^Invalid device argument 9: did you call init\?$"):
        ask(9)
