"""Ranks of one tensor-parallel group get rows of their own.

says: that is declared the same on ranks 0, 1 differs
"""

import torch
import torch.distributed as dist
from common import net, rows_of, start
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

rank, size = start()
mesh = dist.init_device_mesh("cuda", (size,))
model = parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    rows, classes = rows_of(rank, step=step)  # right: rows, classes = rows_of(0, step=step)
    loss = cross_entropy(model(rows), classes)  # here
    opt.zero_grad()
    loss.backward()
    opt.step()
