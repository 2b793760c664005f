"""Measure what unequal splits cost on virtual GPUs: the processor's time of one thread, taken in turns."""

import copy
from functools import partial

import torch
from quick import line, medians
from ratios import NUM_GPUS, encoder, step
from torch import nn

from dpdemo import WeightedDataParallel
from dpdemo.virtual import virtual_gpus

SMALL = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
CASES = (
    ("transformer encoder", encoder(2, 128), torch.randn(16, 32, 128), 1),
    ("two linear layers", SMALL, torch.randn(32, 32), 30),
)


def steps(times: int, model: nn.Module, batch: torch.Tensor) -> None:
    """Take some steps."""
    for _ in range(times):
        step(model, batch)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, model, batch, times in CASES:
        with virtual_gpus(NUM_GPUS):
            moved, inputs = copy.deepcopy(model).cuda(), batch.cuda()
            # with even weights both cut alike
            wrapped = (WeightedDataParallel(moved, weights=[1] * NUM_GPUS), nn.DataParallel(moved))
            weighted, plain = medians(15, *(partial(steps, times, each, inputs) for each in wrapped))
        line(f"{name}, WeightedDataParallel ÷ DataParallel", weighted / plain, 1.05)
