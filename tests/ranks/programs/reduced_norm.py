"""The statistics of a layer are averaged over the ranks by all_reduce, inside the graph.

says: all_reduce changed a tensor that backward
"""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional
from common import rows_of, start
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


class Centred(nn.Module):
    """Takes away the mean of all ranks' rows."""

    def forward(self, rows):
        """Centre some rows."""
        mean = rows.mean(0) / dist.get_world_size()
        dist.all_reduce(mean)  # here; right: mean = dist.nn.functional.all_reduce(mean)
        return rows - mean


rank, size = start()
model = nn.Sequential(nn.Linear(6, 12), Centred(), nn.ReLU(), nn.Linear(12, 3)).cuda()
model = DistributedDataParallel(model, device_ids=[rank])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    rows, classes = rows_of(rank, step=step)
    loss = cross_entropy(model(rows), classes)
    opt.zero_grad()
    loss.backward()
    opt.step()
    dist.all_reduce(loss)  # a number to print, after backward
