"""The learning rate of sharded parameters falls by each rank's own loss.

says: The learning rate differs between ranks from step
says: ReduceLROnPlateau got another number on each rank
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
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, factor=0.5)
for step in range(12):
    rows, classes = rows_of(rank, 4, step=step)
    loss = cross_entropy(model(rows), classes)
    opt.zero_grad()
    loss.backward()
    opt.step()
    seen = loss.detach()
    dist.barrier()  # right: dist.all_reduce(seen, dist.ReduceOp.AVG)
    plateau.step(seen.item())  # here
