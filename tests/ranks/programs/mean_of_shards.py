"""mse_loss of sharded outputs has a gradient that is too large by the number of ranks.

says: F.mse_loss of sharded DTensors: the mean is right, its gradient is 2 times too large
"""

import torch
import torch.distributed as dist
from common import start
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.functional import mse_loss

rank, size = start()
mesh = dist.init_device_mesh("cuda", (size,))
model = nn.Sequential(nn.Linear(6, 8)).cuda()
parallelize_module(model, mesh, {"0": ColwiseParallel(use_local_output=False)})
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    rows, wanted = torch.randn(4, 6).cuda(), distribute_tensor(torch.randn(4, 8).cuda(), mesh, [Shard(1)])
    loss = mse_loss(model(rows), wanted)  # here; right: loss = (model(rows) - wanted).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
