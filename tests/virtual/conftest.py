"""What the tests of virtual GPUs share."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import torch

from dpdemo.virtual import VirtualGpus, virtual_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gpus(request: pytest.FixtureRequest) -> Iterator[VirtualGpus]:
    """Four virtual GPUs; with the parameter "cpu" they draw its random numbers, for an oracle on it."""
    torch.manual_seed(0)
    with virtual_gpus(4, random=getattr(request, "param", "cuda")) as opened:
        yield opened


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Let whatever dies die at once, without the garbage collector."""
    gc.disable()
    yield
    gc.enable()
