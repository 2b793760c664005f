"""Measuring the step of one GPU: on the CPU here, which takes the same way."""

import pytest
import torch

from dpdemo.config.catalogue import MODELS
from dpdemo.config.load import make_config
from dpdemo.errors import RunError, UsageError
from dpdemo.timing.measure import STEPS, WARM_UP, measure_step

CPU = torch.device("cpu")


@pytest.mark.parametrize("model", MODELS)
def test_a_step_of_every_built_in_model_can_be_measured(model):
    assert measure_step(make_config({"model": model, "batch_size": 2}), device=CPU).ms > 0


def test_every_step_is_a_whole_training_step():
    steps = []

    class Counting(torch.optim.Optimizer):
        pass

    before = torch.optim.AdamW.step
    config = make_config({"model": "linear", "batch_size": 2})
    torch.optim.AdamW.step = lambda self, *args: steps.append(self) or before(self, *args)
    try:
        measure_step(config, device=CPU)
    finally:
        torch.optim.AdamW.step = before
    assert len(steps) == WARM_UP + STEPS


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is visible on this machine")
def test_without_a_gpu_it_says_what_to_do():
    with pytest.raises(UsageError, match="expected a GPU to measure on, got none") as refused:
        measure_step(make_config({}))
    assert refused.value.hint.endswith("--one-gpu-step 49ms")


def test_a_model_that_fails_is_an_error_that_shows_why():
    with pytest.raises(RunError, match="expected the model to take a batch of 30, got RuntimeError"):
        measure_step(make_config({}), ["30x4"], device=CPU)
