"""A program that starts its ranks itself: `python started.py spawn|fork mean|sum`."""

import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WAY, REDUCTION = sys.argv[1:]


def train(rank, ranks, store):
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=ranks)
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.2), nn.Linear(12, 3)).cuda()
    model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = TensorDataset(torch.randn(24, 6), torch.randn(24, 3))
    for x, y in DataLoader(rows, 4, sampler=DistributedSampler(rows)):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x.cuda()), y.cuda(), reduction=REDUCTION).backward()
        optimizer.step()
    if rank == 0:
        torch.save(model.state_dict(), "trained.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks = torch.cuda.device_count()
    with Path("runs.txt").open("a", encoding="utf-8") as runs:
        runs.write(f"{ranks}\n")
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(train, (ranks, f"{folder}/store"), nprocs=ranks, start_method=WAY)
