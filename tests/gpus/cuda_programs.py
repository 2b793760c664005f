"""Models with a batch, whose memory is predicted, and measured on a real GPU, by `memory_against_cuda.py`."""

import itertools
from typing import Any

import torch
from torch import nn

from dpdemo.examples.gpt import Decoder

Made = tuple[nn.Module, torch.Tensor]


class LastOf(nn.Module):
    """An LSTM, of which the last layer's steps are returned."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        """Take [rows, steps, width] to the same shape."""
        self.lstm.flatten_parameters()
        return self.lstm(x)[0]


def mlp() -> Made:
    """Build linear layers."""
    pairs = itertools.pairwise([2048, *[8192] * 4, 2048])
    layers = [part for wide, narrow in pairs for part in (nn.Linear(wide, narrow), nn.ReLU())]
    return nn.Sequential(*layers), torch.zeros(4096, 2048)


def cnn() -> Made:
    """Build convolutions that are normalised."""
    layers: list[nn.Module] = []
    for wide, narrow in itertools.pairwise([3, 64, 128, 256, 512]):
        layers += [nn.Conv2d(wide, narrow, 3, padding=1), nn.BatchNorm2d(narrow), nn.ReLU(), nn.MaxPool2d(2)]
    whole = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return whole, torch.zeros(64, 3, 128, 128)


def lstm() -> Made:
    """Build a recurrent network."""
    return LastOf(1024, 4), torch.zeros(64, 256, 1024)


def encoder() -> Made:
    """Build a transformer's encoder."""
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.1, batch_first=True)
    return nn.TransformerEncoder(layer, 8, enable_nested_tensor=False), torch.zeros(32, 256, 1024)


def decoder() -> Made:
    """Build a GPT."""
    return Decoder(1024, 12), torch.zeros(8, 512, dtype=torch.int64)
