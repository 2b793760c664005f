"""A model with a fault that nobody sees: what it counts in forward is lost under DataParallel."""

import torch
from torch import nn


class Net(nn.Module):
    """Scales its outputs by a number that comes as a tensor of one row."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)
        self.steps = 0

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """Take [rows, 8] to [rows, 4]."""
        self.steps += 1
        scaled: torch.Tensor = self.fc(x) * scale.mean()
        return scaled
