"""Shared by the benchmarks within one process: a model, and a step of it."""

import torch
from torch import nn

NUM_GPUS = 4


def encoder(layers: int, width: int, dropout: float = 0.0) -> nn.Module:
    """Build a transformer encoder."""
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=dropout, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def step(model: nn.Module, batch: torch.Tensor) -> None:
    """Run forward and backward once."""
    model(batch).square().mean().backward()
    model.zero_grad()
