"""Accelerate's no_sync is around the pass before the step.

says: The last backward pass before step 1 was not averaged
"""

import contextlib

import torch
from accelerate import Accelerator
from common import rows_of
from torch import nn
from torch.nn.functional import cross_entropy

accelerator = Accelerator()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
model, opt = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for step in range(6):
    rows, classes = rows_of(accelerator.process_index, step=step)
    is_held = step % 2 == 1  # right: is_held = step % 2 == 0
    with accelerator.no_sync(model) if is_held else contextlib.nullcontext():
        accelerator.backward(cross_entropy(model(rows), classes))  # here
    if step % 2 == 1:
        opt.step()
        opt.zero_grad()
accelerator.end_training()
