"""What `torch.cuda.memory_stats` and its like answer."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("gpus")


def test_nothing_is_known_before_cuda_is_initialised():
    assert torch.cuda.memory_stats(1) == {}
    assert torch.cuda.memory_allocated(1) == 0
    assert not torch.cuda.is_initialized()


def test_bytes_are_those_held_now_and_at_the_peak():
    kept = torch.ones(3, device="cuda:1"), torch.ones(200, device="cuda:1")
    torch.ones(1000, device="cuda:1")
    stats = torch.cuda.memory_stats(1)
    for name in ("allocated_bytes", "active_bytes", "reserved_bytes"):
        assert (stats[f"{name}.all.current"], stats[f"{name}.all.peak"]) == (1536, 5632)
    assert torch.cuda.memory_summary(1) == "cuda:1: 1536 bytes allocated, 5632 at the peak; CUDA OOMs: 0"
    torch.cuda.reset_peak_memory_stats(1)
    torch.cuda.reset_accumulated_memory_stats(1)
    assert torch.cuda.memory_stats(1)["allocated_bytes.all.peak"] == sum(
        -(-x.nbytes // 512) * 512 for x in kept
    )


@pytest.mark.parametrize(
    "ask",
    [
        torch.cuda.memory_allocated,
        torch.cuda.reset_peak_memory_stats,
        torch.cuda.reset_accumulated_memory_stats,
    ],
)
def test_a_gpu_that_is_not_there_is_the_allocators_own_error(ask):
    torch.cuda.init()
    with pytest.raises(RuntimeError, match=r"^Invalid device argument 9: did you call init\?$"):
        ask(9)
