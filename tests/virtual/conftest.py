"""What the tests of virtual GPUs share."""

import gc

import pytest
import torch

from dpdemo.virtual import virtual_gpus


@pytest.fixture
def gpus(request):
    """Four virtual GPUs; with the parameter "cpu" they draw its random numbers, for an oracle on it."""
    torch.manual_seed(0)
    with virtual_gpus(4, random=getattr(request, "param", "cuda")) as opened:
        yield opened


@pytest.fixture
def without_collector():
    """Let whatever dies die at once, without the garbage collector."""
    gc.disable()
    yield
    gc.enable()
