"""Training programs whose memory is predicted here, and measured on a real GPU by `against_cuda.py`."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dpdemo.examples.gpt import Decoder


class LastOf(nn.Module):
    """An LSTM, of which the last layer's steps are returned."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take [rows, steps, width] to the same shape."""
        self.lstm.flatten_parameters()
        return self.lstm(x)[0]


def _mlp() -> nn.Module:
    widths = [2048, *[8192] * 4, 2048]
    layers = [
        part for wide, narrow in itertools.pairwise(widths) for part in (nn.Linear(wide, narrow), nn.ReLU())
    ]
    return nn.Sequential(*layers)


def _cnn() -> nn.Module:
    channels = [3, 64, 128, 256, 512]
    layers: list[nn.Module] = []
    for wide, narrow in itertools.pairwise(channels):
        layers += [nn.Conv2d(wide, narrow, 3, padding=1), nn.BatchNorm2d(narrow), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.1, batch_first=True)
    return nn.TransformerEncoder(layer, 8, enable_nested_tensor=False)


@dataclass(frozen=True)
class Program:
    """A model, the shape of its batch, and its loss as `dpdemo memory --loss` names it."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    loss: str
    dtype: torch.dtype = torch.float32

    def batch(self, device: str) -> torch.Tensor:
        """Make a batch of zeros on a device."""
        return torch.zeros(self.shape, dtype=self.dtype, device=device)

    def losses(self, output: Any) -> torch.Tensor:
        """Compute the loss."""
        if self.loss == "mse":
            return functional.mse_loss(output, torch.zeros_like(output))
        rows = output.flatten(0, -2)
        return functional.cross_entropy(rows, torch.zeros(len(rows), dtype=torch.int64, device=rows.device))


PROGRAMS = {
    "mlp": Program(_mlp, (4096, 2048), "mse"),
    "cnn": Program(_cnn, (64, 3, 128, 128), "cross-entropy"),
    "lstm": Program(lambda: LastOf(1024, 4), (64, 256, 1024), "mse"),
    "encoder": Program(_encoder, (32, 256, 1024), "mse"),
    "decoder": Program(lambda: Decoder(1024, 12), (8, 512), "cross-entropy", torch.int64),
}


def train(
    program: Program, model: nn.Module, batch: torch.Tensor, optimizer: torch.optim.Optimizer, *, amp: bool
) -> None:
    """Make one step."""
    optimizer.zero_grad()
    with torch.autocast("cuda", enabled=amp):
        loss = program.losses(model(batch))
    loss.backward()
    optimizer.step()


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "adamw": torch.optim.AdamW,
}


def peak_of(program: Program, optimizer: str, *, amp: bool) -> int:
    """Make two steps on the current CUDA device, real or virtual, and return the peak of the second."""
    model = program.build().cuda()
    chosen = OPTIMIZERS[optimizer](model.parameters())
    batch = program.batch("cuda")
    train(program, model, batch, chosen, amp=amp)
    torch.cuda.reset_peak_memory_stats()
    train(program, model, batch, chosen, amp=amp)
    return torch.cuda.max_memory_allocated()
