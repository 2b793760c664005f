"""What the tests of virtual GPUs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from dpdemo.virtual import VirtualGpus, virtual_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gpus() -> Iterator[VirtualGpus]:
    """Four virtual GPUs."""
    torch.manual_seed(0)
    with virtual_gpus(4) as opened:
        yield opened
