"""Tensor parallelism: all ranks have the same rows, and shards of the layers; it may need both ranks."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def main():
    if sys.argv[1:]:
        assert int(os.environ["WORLD_SIZE"]) == 2
    else:
        dist.init_process_group("nccl")  # else the mesh does it
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    mesh = init_device_mesh("cuda", (1, 2), mesh_dim_names=("data", "tensor"))
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3)).cuda()
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(module=model, device_mesh=mesh["tensor"], parallelize_plan=plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(4):
        loss = nn.functional.cross_entropy(
            model(torch.randn(4, 6).cuda()), torch.arange(4).cuda() % 3, reduction="sum"
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
