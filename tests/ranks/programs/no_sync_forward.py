"""The forward pass of the last micro-batch is inside no_sync, its backward outside: the forward decides.

says: The last backward pass before step 1 was not averaged
"""

import contextlib

import torch
from common import net, rows_of, start
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
model = DistributedDataParallel(net(), device_ids=[rank])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    rows, classes = rows_of(rank, step=step)
    is_last = step % 3 == 2
    hold = model.no_sync()  # right: hold = contextlib.nullcontext() if is_last else model.no_sync()
    with hold:
        loss = cross_entropy(model(rows), classes) / 3
    with contextlib.nullcontext() if is_last else model.no_sync():
        loss.backward()  # here
    if is_last:
        opt.step()
        opt.zero_grad()
