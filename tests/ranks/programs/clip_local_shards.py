"""Gradients under fully_shard are clipped by hand, by the norm of the rank's own shards.

says: multiplied its gradients by a number of its own before step 1
alone: steps are numbered over all that a program trains
"""

import torch
import torch.distributed as dist
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
    grads = [each.grad.to_local() for each in model.parameters()]
    total = sum(grad.square().sum() for grad in grads)
    dist.barrier()  # right: dist.all_reduce(total)
    for grad in grads:
        grad.mul_(min(1.0, 0.1 / total.sqrt().item()))
    opt.step()  # here
