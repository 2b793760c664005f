"""Rank 0 alone updates the average of the weights, and each rank goes on with its own average.

says: the model loaded another state on each rank
"""

import copy

import torch
from common import net, rows_of, start
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
model = DistributedDataParallel(net(), device_ids=[rank])
average = copy.deepcopy(model.module)
opt = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(4):
    rows, classes = rows_of(rank, step=step)
    opt.zero_grad()
    cross_entropy(model(rows), classes).backward()
    opt.step()
    if rank == 0:  # right: if True:
        with torch.no_grad():
            for mean, each in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(each, 0.5)
    if step == 2:
        model.module.load_state_dict(average.state_dict())  # here
