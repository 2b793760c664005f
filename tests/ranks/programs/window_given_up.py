"""A window of micro-batches under fully_shard is given up by zero_grad, which does not clear its gradients.

says: zero_grad() does not clear the gradients that fully_shard has not reduced
"""

import torch
from common import net, rows_of, start
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

rank, size = start()
model = net()
fully_shard(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    rows, classes = rows_of(rank, step=step)
    model.set_requires_gradient_sync(step % 2 == 1)
    loss = cross_entropy(model(rows), classes)
    loss.backward()
    is_given_up = step == 0
    if step % 2 or is_given_up:  # right: if step % 2:
        opt.step() if step % 2 else None
        opt.zero_grad()  # here
