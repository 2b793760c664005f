"""A model that counts its steps in forward: under DataParallel the count is lost."""

import torch
from torch import nn


class Net(nn.Module):
    """A linear layer that counts how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take [rows, 8] to [rows, 4]."""
        self.steps += 1
        result: torch.Tensor = self.fc(x)
        return result
