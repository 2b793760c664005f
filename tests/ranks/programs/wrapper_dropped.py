"""The model is wrapped anew in each call, and nobody keeps the wrapper.

says: No gradient was averaged: the wrapper made at
"""

import torch
from common import net, rows_of, start
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
model = net()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
wrapped = DistributedDataParallel(model)


def loss_of(rows, classes):
    """Return the loss of some rows."""
    outer = DistributedDataParallel(model)  # right: outer = wrapped
    return cross_entropy(outer(rows), classes)


for step in range(3):
    loss = loss_of(*rows_of(rank, step=step))
    opt.zero_grad()
    loss.backward()  # here
    opt.step()
