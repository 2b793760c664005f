"""The workers of all ranks have the same seeds, and add the same noise to other samples.

note: The data set drew the same random numbers (torch) on all ranks
alone: the first batches of the first loaders are looked at
"""

import torch
from common import net, start
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Noisy(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.full((6,), index / 16) + 0.1 * torch.randn(6), index % 3


rank, size = start()
model = DistributedDataParallel(net(), device_ids=[rank])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(5)  # right: torch.manual_seed(5 + rank)
loader = DataLoader(Noisy(), 4, sampler=DistributedSampler(Noisy()), num_workers=1)  # here
for rows, classes in loader:
    opt.zero_grad()
    cross_entropy(model(rows.cuda()), classes.cuda()).backward()
    opt.step()
