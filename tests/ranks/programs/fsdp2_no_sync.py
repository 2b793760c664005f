"""set_requires_gradient_sync(False) is left on for the last pass of a window.

says: The last backward pass before step 1 was not averaged
"""

import torch
from common import net, rows_of, start
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

rank, size = start()
model = net()
for layer in (model[0], model[2], model):
    fully_shard(layer)
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(8):
    rows, classes = rows_of(rank, step=step)
    is_last = step % 2 == 0  # right: is_last = step % 2 == 1
    model.set_requires_gradient_sync(is_last)
    loss = cross_entropy(model(rows), classes) / 2
    loss.backward()  # here
    if step % 2 == 1:
        opt.step()
        opt.zero_grad()
