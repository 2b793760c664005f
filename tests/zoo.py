"""Models of the README: one with a fault that nobody sees, and one that needs much memory."""

import torch
from torch import nn


class Net(nn.Module):
    """Scales its outputs by a number that comes as a tensor of one row."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)
        self.steps = 0

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        scaled: torch.Tensor = self.fc(x) * scale.mean()
        return scaled


def make_model() -> nn.Module:
    return Net()


def gpt() -> nn.Module:
    """Make a language model as large as GPT-2 small."""
    from tests.footprint.programs import Decoder

    return Decoder(width=768, layers=12, words=50257)
