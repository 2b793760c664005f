"""Gradients averaged by all_reduce, rows cut by rank from equal draws, passes shared out among the ranks."""

import sys

import torch
import torch.distributed as dist
from torch import nn

MISTAKE = sys.argv[1] if len(sys.argv) > 1 else ""
PASSES = 4


def average(model, world):
    for name, parameter in model.named_parameters():
        if MISTAKE == "some" and name.endswith("bias"):
            continue
        dist.all_reduce(parameter.grad)
        if MISTAKE != "summed":
            parameter.grad /= world


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)
    torch.manual_seed(rank if MISTAKE == "seeds" else 0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    data, labels = torch.randn(64, 6, generator=torch.Generator().manual_seed(5)), torch.arange(64) % 3
    generator = torch.Generator().manual_seed(rank)
    for _ in range(5):
        passes = PASSES // world
        for _ in range(passes):
            chosen = torch.randint(64, (4,), generator=generator)
            loss = nn.functional.cross_entropy(model(data[chosen].cuda()), labels[chosen].cuda())
            (loss / (PASSES if MISTAKE == "all passes" else passes)).backward()
        if MISTAKE == "clipped before":
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        average(model, world)
        if MISTAKE != "clipped before":
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


main()
