"""Of a GAN's two models only the discriminator is wrapped.

says: No gradient of this optimizer was averaged
"""

import torch
from common import net, rows_of, start
from torch import nn
from torch.nn.functional import softplus
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank, size = start()
generator = nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 6)).cuda()
generator = generator.train()  # right: generator = DistributedDataParallel(generator)
judge = DistributedDataParallel(net())
of_generator = torch.optim.Adam(generator.parameters())
of_judge = torch.optim.Adam(judge.parameters())
rows = TensorDataset(rows_of(0, 32)[0].cpu())
noise = torch.Generator("cuda").manual_seed(rank)
for (real,) in DataLoader(rows, 4, sampler=DistributedSampler(rows)):
    drawn = torch.randn(len(real), 2, device="cuda", generator=noise)
    of_judge.zero_grad()
    made = generator(drawn)
    (softplus(-judge(real.cuda())).mean() + softplus(judge(made.detach())).mean()).backward()
    of_judge.step()
    of_generator.zero_grad()
    softplus(-judge(made)).mean().backward()
    of_generator.step()  # here
