"""InfoNCE over the rows of all ranks, or of each rank alone; a covariance of a rank's rows."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as collectives
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

KIND = sys.argv[1]


def info_nce(a, b):
    logits = a @ b.T / 0.2
    return nn.functional.cross_entropy(logits, torch.arange(len(a), device=a.device))


def gathered(rows):
    return torch.cat(collectives.all_gather(rows))


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5)).cuda()
    model = DistributedDataParallel(model, device_ids=[rank])
    rows = TensorDataset(torch.randn(32, 6), torch.randn(32, 6))
    loader = DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        both = nn.functional.normalize(model(torch.cat([x, y]).cuda()), dim=1)
        a, b = both.chunk(2)
        if KIND == "gathered":
            loss = info_nce(gathered(a), gathered(b))
        elif KIND == "local":
            loss = info_nce(a, b)
        else:
            centred = both - both.mean(0)
            covariance = centred.T @ centred / (len(both) - 1)
            loss = (covariance - torch.eye(5, device="cuda")).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


main()
