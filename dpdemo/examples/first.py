"""A model to start from: `dpdemo init` writes this file as model.py."""

import torch
from torch import nn


class Net(nn.Module):
    """Two linear layers; dpdemo gives input_size and output_size from the config."""

    def __init__(self, input_size: int = 5, output_size: int = 2) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(input_size, 16), nn.ReLU(), nn.Linear(16, output_size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take [rows, input_size] to [rows, output_size]."""
        result: torch.Tensor = self.body(x)
        return result
