"""A training script for NCCL and GPUs: `dpdemo exec --ranks 2 -m dpdemo.examples.ddp` runs it without."""

import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    """Train a linear model for an epoch of 100 samples."""
    distributed.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1).to(device), device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(100, 8, device="cpu"), torch.randn(100, 1, device="cpu"))
    for x, y in DataLoader(data, batch_size=30, sampler=DistributedSampler(data)):
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
