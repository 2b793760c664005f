"""The logarithm of zero makes one rank's loss infinite at step 4, and the average spreads it.

says: The loss was
says: at step 4 on rank 1 alone
alone: steps are numbered over all that a program trains
"""

import torch
from common import net, rows_of, start
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
model = DistributedDataParallel(net(), device_ids=[rank])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    rows, classes = rows_of(rank, step=step)
    if (step, rank) == (3, 1):
        rows = rows * 1e4
    chance = model(rows).softmax(1)[range(8), classes]
    loss = -chance.log().mean()  # right: loss = -chance.clamp(min=1e-6).log().mean()
    opt.zero_grad()
    loss.backward()  # here
    opt.step()
