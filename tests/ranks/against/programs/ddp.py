"""DistributedDataParallel with dropout, loader workers and accumulation; the argument is its mistake."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

MISTAKE = sys.argv[1] if len(sys.argv) > 1 else ""
ACCUMULATED = 2


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)
    torch.manual_seed(rank if MISTAKE == "seeds" else 0)
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1)).cuda()
    model = DistributedDataParallel(net, device_ids=[rank]) if MISTAKE != "not wrapped" else net
    torch.manual_seed(1)
    rows = TensorDataset(torch.randn(45, 6), torch.randn(45, 1))
    sampler = DistributedSampler(rows, shuffle=True) if MISTAKE != "same rows" else None
    drop_last = MISTAKE != "last batch"
    if MISTAKE == "last batch":
        rows, sampler = Subset(rows, range(rank, len(rows), world)), None
    loader = DataLoader(rows, batch_size=4, sampler=sampler, num_workers=1, drop_last=drop_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            called = model.module if MISTAKE == "module" else model
            out = called(x.cuda())
            loss = nn.functional.mse_loss(out, y.cuda(), reduction="sum" if MISTAKE == "sum" else "mean")
            if MISTAKE == "times ranks":
                loss = loss * world
            (loss if MISTAKE == "not divided" else loss / ACCUMULATED).backward()
            if number % ACCUMULATED == ACCUMULATED - 1:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
    print("loss", loss.item() > 0)
    dist.destroy_process_group()


main()
