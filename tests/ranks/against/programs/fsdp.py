"""FullyShardedDataParallel and fully_shard, clipped; also in bfloat16."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

KIND, MISTAKE = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""


class Limited(TensorDataset):
    limit = nn.Hardtanh(-9, 9)  # a module without parameters, as torchvision's transforms are

    def __getitem__(self, index):
        row, label = super().__getitem__(index)
        return self.limit(row), label


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 13), nn.GELU(), nn.Linear(13, 7), nn.GELU(), nn.Linear(7, 3)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if KIND == "fsdp1":
        model = FullyShardedDataParallel(model, use_orig_params=MISTAKE == "original")
    else:
        policy = (
            MixedPrecisionPolicy(torch.bfloat16, torch.float32)
            if KIND == "bfloat16"
            else MixedPrecisionPolicy()
        )
        fully_shard(model[0], mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    if MISTAKE != "early optimizer":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = Limited(torch.randn(30, 5), torch.randint(3, (30,)))
    loader = DataLoader(rows, batch_size=5, sampler=DistributedSampler(rows))
    for x, y in loader:
        reduction = "sum" if MISTAKE == "sum" else "mean"
        nn.functional.cross_entropy(model(x.cuda()), y.cuda(), reduction=reduction).backward()
        if KIND == "fsdp1":
            model.clip_grad_norm_(0.01)
        else:
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


main()
