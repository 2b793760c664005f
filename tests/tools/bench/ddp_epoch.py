"""Train 12.7 million parameters under DDP for 20 steps: `exec --ranks 2` with and without `--check`."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH, BATCH, STEPS = 1455, 32, 20

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
torch.manual_seed(0)
layers = [layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
model = DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[rank])
rows = TensorDataset(torch.randn(BATCH * STEPS * dist.get_world_size(), WIDTH))
loader = DataLoader(rows, batch_size=BATCH, sampler=DistributedSampler(rows))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for (given,) in loader:
    x = given.cuda()
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
dist.destroy_process_group()
