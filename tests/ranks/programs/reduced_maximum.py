"""A differentiable all_reduce by MAX sends the gradient to every rank.

says: The gradient of a differentiable all_reduce by MAX is not that of MAX
"""

import torch
import torch.distributed as dist
from common import net, rows_of, start
from torch.distributed.nn import functional
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
model = DistributedDataParallel(net(), device_ids=[rank])
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(2):
    rows, classes = rows_of(rank, step=step)
    largest = model(rows).amax(0)
    largest = functional.all_reduce(
        largest, dist.ReduceOp.MAX
    )  # here; right: largest = torch.stack(functional.all_gather(largest)).amax(0)
    opt.zero_grad()
    (largest.square().sum() + model.module[0].bias.sum() * 0).backward()
    opt.step()
