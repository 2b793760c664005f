"""Beginnings that these programs share."""

import os

import torch
import torch.distributed as dist
from torch import nn


def start(seed=0):
    """Join the ranks; return this one's number and the number of ranks."""
    if not dist.is_initialized():  # by the program before, where several are run as one
        dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.manual_seed(seed)
    return rank, dist.get_world_size()


def rows_of(rank, number=8, step=0):
    """Return a rank's rows of one step, and their classes."""
    generator = torch.Generator().manual_seed(97 * step + rank + 1)
    rows = torch.randn(number, 6, generator=generator)
    return rows.cuda(), rows[:, :3].argmax(1).cuda()


def net():
    """Return a small classifier on the rank's GPU."""
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)).cuda()
