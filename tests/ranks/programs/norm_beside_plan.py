"""A scale after tensor-parallel layers is no part of the plan, and gets other gradients on each rank.

says: under no wrapper
"""

import torch
import torch.distributed as dist
from common import rows_of, start
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

rank, size = start()
mesh = dist.init_device_mesh("cuda", (size,))
layer, scale = nn.Linear(6, 6).cuda(), nn.Parameter(torch.ones(3).cuda())
parallelize_module(layer, mesh, ColwiseParallel())
opt = torch.optim.SGD([*layer.parameters(), scale], lr=0.1, foreach=False)
for step in range(3):
    rows, classes = rows_of(0, step=step)
    loss = cross_entropy(layer(rows) * scale, classes)
    opt.zero_grad()
    loss.backward()
    dist.barrier()  # right: dist.all_reduce(scale.grad)
    opt.step()  # here
