"""autocast and GradScaler, with unscale_ and clipping."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DTYPE, MISTAKE = getattr(torch, sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)).cuda()
    model = DistributedDataParallel(model, device_ids=[rank])
    rows = TensorDataset(torch.randn(120, 8), torch.randn(120, 1))
    loader = DataLoader(rows, batch_size=6, sampler=DistributedSampler(rows))
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler(enabled=DTYPE is torch.float16)
    for x, y in loader:
        with torch.autocast("cuda", DTYPE):
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda(), reduction="none")
        loss = loss.sum() if MISTAKE == "sum" else loss.mean()
        if MISTAKE == "uneven" and rank == 1:
            loss = loss * 1.2
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    dist.destroy_process_group()


main()
