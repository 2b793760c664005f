"""Rank 0 evaluates alone, and trains on in the mode of the evaluation.

says: Rank 0 makes step 3 in eval() mode
"""

import torch
from common import net, rows_of, start
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
model = DistributedDataParallel(nn.Sequential(nn.Dropout(0.5), net()), device_ids=[rank])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    rows, classes = rows_of(rank, step=step)
    if step == 2 and rank == 0:
        model.eval()
        with torch.no_grad():
            model.module(rows)
        opt.zero_grad()  # right: model.train()
    cross_entropy(model(rows), classes).backward()
    opt.step()  # here
    opt.zero_grad()
