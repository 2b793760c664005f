"""Shared by the benchmarks within one process: a model, a step, its time, and a line that keeps a bound."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

NUM_GPUS = 4


def encoder(layers: int, width: int, dropout: float = 0.0) -> nn.Module:
    """Build a transformer encoder."""
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=dropout, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def step(model: nn.Module, batch: torch.Tensor) -> None:
    """Run forward and backward once."""
    model(batch).square().mean().backward()
    model.zero_grad()


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """Return the processor's time for so many calls."""
    began = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - began


def report(what: str, value: float, bound: float) -> bool:
    """Print one figure and return whether it keeps its bound."""
    held = value <= bound
    print(f"{what:<84} {value:7.3f}  (at most {bound:g}){'' if held else '  NOT HELD'}")
    return held
