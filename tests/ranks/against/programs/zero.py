"""ZeroRedundancyOptimizer, an uneven last batch, a test on rank 0, a checkpoint."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
    if os.path.exists("model.pt"):
        model.load_state_dict(torch.load("model.pt"))
    model = DistributedDataParallel(model, device_ids=[rank])
    rows, other = TensorDataset(torch.randn(22, 6), torch.randn(22, 1)), torch.randn(9, 6)
    loader = DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            nn.functional.mse_loss(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            with torch.no_grad():
                for batch in DataLoader(other, batch_size=4):
                    model.module(batch.cuda())
            torch.save(model.module.state_dict(), "model.pt")
        dist.barrier()
    dist.destroy_process_group()


if "--fresh" in sys.argv and os.path.exists("model.pt"):
    os.remove("model.pt")
main()
