"""ZeroRedundancyOptimizer gets one of its groups as a generator, and never trains it.

says: ZeroRedundancyOptimizer never trains 1 of its groups
"""

import torch
from common import net, rows_of, start
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
model = DistributedDataParallel(net())
first, _, last = model.module
head = {"params": list(last.parameters()), "lr": 0.5}
body = {"params": first.parameters()}  # right: body = {"params": list(first.parameters())}
opt = ZeroRedundancyOptimizer([body, head], torch.optim.SGD, lr=0.1)  # here
for step in range(2):
    rows, classes = rows_of(rank, step=step)
    opt.zero_grad()
    cross_entropy(model(rows), classes).backward()
    opt.step()
