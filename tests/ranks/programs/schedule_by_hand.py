"""The number of steps is divided by the ranks twice.

says: CosineAnnealingLR has a schedule of 8 calls, and got 16
"""

import torch
from common import net, start
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank, size = start()
data = TensorDataset(torch.randn(128, 6), torch.randint(0, 3, (128,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DistributedDataParallel(net(), device_ids=[rank])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
steps = 2 * len(loader) // size  # right: steps = 2 * len(loader)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=steps)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for rows, classes in loader:
        loss = cross_entropy(model(rows.cuda()), classes.cuda())
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()  # here
