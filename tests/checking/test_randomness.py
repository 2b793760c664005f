"""Every generator that a forward may draw from is known, started and put back."""

import random

import numpy as np
import pytest
import torch

from dpdemo.checking.running import randomness
from dpdemo.virtual import virtual_gpus

DRAWS = {
    "cpu": lambda: torch.rand(()).item(),
    "gpu 1": lambda: torch.rand((), device="cuda:1").item(),
    "python": random.random,
    "numpy": np.random.rand,
    "numpy's second normal number": np.random.randn,
}


@pytest.fixture(autouse=True, params=["cuda", "cpu"])
def _two_gpus(request):
    with virtual_gpus(2, random=request.param), randomness.preserved():
        yield


@pytest.mark.parametrize("draw", DRAWS.values(), ids=list(DRAWS))
def test_a_number_that_is_drawn_is_noticed(draw):
    randomness.seed_all()
    start = randomness.progress()
    assert randomness.progress() == start
    draw()
    assert randomness.progress() != start


@pytest.mark.parametrize("draw", DRAWS.values(), ids=list(DRAWS))
def test_generators_are_put_back(draw):
    with randomness.preserved():
        numbers = [draw() for _ in range(3)]
    assert [draw() for _ in range(3)] == numbers


@pytest.mark.parametrize("draw", DRAWS.values(), ids=list(DRAWS))
def test_all_generators_start_alike(draw):
    randomness.seed_all()
    number = draw()
    draw()
    randomness.seed_all()
    assert draw() == number
