"""A loss has weights of its own, which the optimizer trains and no wrapper averages.

says: under no wrapper
"""

import torch
from common import net, rows_of, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
model = DistributedDataParallel(net(), device_ids=[rank])
centres = nn.Embedding(3, 3).cuda()
torch.cuda.synchronize()  # right: centres = DistributedDataParallel(centres, device_ids=[rank])
opt = torch.optim.SGD([*model.parameters(), *centres.parameters()], lr=0.1)
for step in range(5):
    rows, classes = rows_of(rank, step=step)
    loss = (model(rows) - centres(classes)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # here
