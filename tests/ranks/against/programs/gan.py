"""Two optimizers, noise drawn in the loop; augmentation in the data set, a random collate_fn."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate


class Rows(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(6, generator=generator) + 0.1 * random.random()


def masked(rows):
    batch = default_collate(rows)
    return batch * (torch.rand(batch.shape) > 0.1)


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    make = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6)).cuda()
    judge = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1)).cuda()
    make, judge = (DistributedDataParallel(each, device_ids=[rank]) for each in (make, judge))
    optimizers = [torch.optim.Adam(each.parameters(), lr=1e-3) for each in (make, judge)]
    torch.manual_seed(100 + rank)
    random.seed(rank)
    rows = Rows()
    loader = DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows), collate_fn=masked)
    entropy = nn.functional.binary_cross_entropy_with_logits
    for real in loader:
        real = real.cuda()
        fake = make(torch.randn(len(real), 3, device="cuda"))
        optimizers[1].zero_grad()
        ones, zeros = torch.ones(len(real), 1, device="cuda"), torch.zeros(len(real), 1, device="cuda")
        (entropy(judge(real), ones) + entropy(judge(fake.detach()), zeros)).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        entropy(judge(fake), ones).backward()
        optimizers[0].step()
    dist.destroy_process_group()


main()
