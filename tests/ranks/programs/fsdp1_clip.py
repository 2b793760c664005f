"""Shards of FullyShardedDataParallel are clipped by torch.nn.utils.

says: Gradients are clipped by the norm of each rank's own shards
"""

import torch
from common import net, rows_of, start
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.functional import cross_entropy

rank, size = start()
model = FullyShardedDataParallel(net(), use_orig_params=True)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    rows, classes = rows_of(rank, step=step)
    opt.zero_grad()
    cross_entropy(model(rows), classes).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # here; right: model.clip_grad_norm_(0.1)
    opt.step()
