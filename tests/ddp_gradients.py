"""Print the gradients of one step of plain torch's DDP, of rank 0 of as many processes as asked for.

    python ddp_gradients.py RANKS ROWS SEED

Each rank takes the samples that DistributedSampler deals to it, and averages its own loss.
"""

import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, TensorDataset


def make(rows, seed):
    """Make the model and the batch, equal in each process."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 3))
    return model, torch.randn(rows, 7)


def step(rank, ranks, rows, seed, folder):
    """Take one step on this rank. Ranks meet in a file: a free port may be taken by another program."""
    store = dist.FileStore(f"{folder}/store", ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    model, batch = make(rows, seed)
    mine = list(DistributedSampler(TensorDataset(batch), ranks, rank, shuffle=False))
    wrapper = DistributedDataParallel(model)
    wrapper(batch[mine]).pow(2).mean().backward()
    if rank == 0:
        found = {name: parameter.grad.tolist() for name, parameter in model.named_parameters()}
        sys.stdout.write(json.dumps(found))
        sys.stdout.flush()
    dist.destroy_process_group()
    os._exit(0)  # an orderly exit aborts now and then (pytorch/pytorch#179291)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(step, (*numbers, folder), nprocs=numbers[0])
