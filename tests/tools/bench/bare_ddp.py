"""What a user writes for torchrun to see what each rank gets: the yardstick of tests/tools/bench/ranks.py."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
data = TensorDataset(torch.randn(100, 5))
sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(data, batch_size=30, sampler=sampler)
model = DistributedDataParallel(nn.Linear(5, 2))
seen = []
for (batch,) in loader:
    model.zero_grad()
    output = model(batch)
    output.mean().backward()
    seen.append((rank, tuple(batch.shape), tuple(output.shape)))
gathered = [None] * dist.get_world_size() if rank == 0 else None
dist.gather_object((seen, list(sampler)), gathered)
if rank == 0:
    for batches, _ in gathered:
        for number, batch in enumerate(batches, 1):
            print("batch", number, "rank", batch[0], "input", batch[1], "output", batch[2])
    drawn = [index for _, indices in gathered for index in indices]
    print("drawn", len(drawn), "repeated", len(drawn) - len(set(drawn)))
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # an orderly exit aborts now and then (pytorch/pytorch#179291)
