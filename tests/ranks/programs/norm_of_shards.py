"""Gradients under fully_shard are clipped by hand, by item() of a pending norm.

says: A number was read of a DTensor whose reduction is pending
"""

import torch
from common import net, rows_of, start
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

rank, size = start()
model = net()
fully_shard(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    rows, classes = rows_of(rank, step=step)
    opt.zero_grad()
    cross_entropy(model(rows), classes).backward()
    total = 0.0
    for each in model.parameters():
        norm = each.grad.norm()
        norm = norm.item()  # here; right: norm = norm.full_tensor().item()
        total += norm**2
    for each in model.parameters():
        each.grad.mul_(min(1.0, 0.1 / total**0.5))
    opt.step()
