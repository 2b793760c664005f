"""Tensors that a model keeps for the whole process do not affect the next prediction."""

import functools

import pytest
import torch
from torch import nn

from dpdemo.memory import predict_memory


@functools.lru_cache(maxsize=1)
def positions(length, device):
    return torch.arange(length, dtype=torch.float32, device=device)


@functools.cache
def pairs(length, device):
    return [positions(length, device)], {"half": torch.ones(length, device=device) / 2}


@functools.cache
def numbers(length):
    return tuple(range(length))


class KeepsPositions(nn.Module):
    """A detector's position embedding: it depends on shapes alone, and is kept for all models together."""

    def __init__(self, keeps=positions):
        super().__init__()
        self.layer, self.keeps = nn.Linear(8, 8), keeps

    def forward(self, x):
        kept = self.keeps(len(numbers(8)), x.device)
        return self.layer(x) + (kept if self.keeps is positions else kept[0][0] + kept[1]["half"])


@pytest.mark.parametrize("with_numbers", [False, True])
@pytest.mark.parametrize("keeps", [positions, pairs], ids=["one", "all"])
def test_a_second_prediction_in_one_process_is_as_the_first(keeps, with_numbers, monkeypatch):
    monkeypatch.setattr(KeepsPositions.__init__, "__defaults__", (keeps,))
    numbers(8)
    first, again = (
        predict_memory(model=f"{__name__}:KeepsPositions", gpus=2, inputs=["8x8"], numbers=with_numbers).gpus
        for _ in range(2)
    )
    assert again == first
    assert positions.cache_info().currsize == pairs.cache_info().currsize == 0
    assert numbers.cache_info().currsize == 1
