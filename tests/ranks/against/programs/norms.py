"""BatchNorm, synced or each rank's own."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

KIND, MISTAKE = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1))
    if KIND == "synced":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = DistributedDataParallel(model.cuda(), device_ids=[rank])
    rows = TensorDataset(torch.randn(40, 1, 6, 6), torch.randn(40, 1))
    loader = DataLoader(rows, batch_size=5, sampler=DistributedSampler(rows))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in loader:
        reduction = "sum" if MISTAKE == "sum" else "mean"
        nn.functional.l1_loss(model(x.cuda()), y.cuda(), reduction=reduction).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


main()
