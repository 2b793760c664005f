"""A layer is thawed for the last two of eleven steps, and the wrapper does not average it.

says: 0.weight, 0.bias differ between ranks after step 10
alone: steps are numbered over all that a program trains
"""

import torch
from common import net, rows_of, start
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
inner = net()
inner[0].requires_grad_(False)
model = DistributedDataParallel(inner, device_ids=[rank])
opt = torch.optim.SGD(inner.parameters(), lr=0.1)
for step in range(11):
    if step == 9:
        inner[0].requires_grad_(True)
        torch.cuda.synchronize()  # right: model = DistributedDataParallel(inner, device_ids=[rank])
    rows, classes = rows_of(rank, step=step)
    loss = cross_entropy(model(rows), classes)
    opt.zero_grad()
    loss.backward()
    opt.step()  # here
