"""An out-of-memory error on a rank comes with what its GPU held, and with the user's largest tensors."""

import pytest
import torch
from rankevents import AT
from torch import nn

from dpdemo.ranks.events import HomeGpu, OnOtherGpu
from dpdemo.ranks.mistakes import find_mistakes
from dpdemo.ranks.observe import full_gpu
from dpdemo.virtual import virtual_gpus
from dpdemo.virtual.state import the_session

MIB = 2**20


@pytest.fixture
def limited():
    with virtual_gpus(2, memory=[40 * MIB, 40 * MIB]):
        the_session().ledger.when_full = full_gpu._count
        yield


@pytest.mark.usefixtures("limited")
def test_the_parts_are_named_the_largest_first_with_the_variables():
    kept = nn.Linear(1024, 1024, bias=False, device="cuda:1")
    logits = torch.empty(20 * MIB, dtype=torch.uint8, device="cuda:1")
    other = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda:0")
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(30 * MIB, dtype=torch.uint8, device="cuda:1")
    held, variables = full_gpu.lines(caught.value)
    assert held == "cuda:1 held 24 MiB: activations and temporaries 20 MiB, parameters 4 MiB"
    assert variables.startswith(f"Largest variables: `logits` [{20 * MIB}] uint8 (20 MiB) at ")
    assert "other" not in variables
    del kept, logits, other


def test_another_error_has_no_such_line():
    assert full_gpu.lines(RuntimeError("GPU 1 has a total capacity")) == []


def test_who_held_memory_on_another_ranks_gpu_is_named_where_ranks_were_stopped():
    events = {0: [HomeGpu(0)], 1: [HomeGpu(1), OnOtherGpu(AT, 0, 2048, "")]}
    (found,) = find_mistakes(events, were_stopped=True)
    assert found.text == "Rank 1 put 2 KiB on cuda:0, the GPU of rank 0"
