"""The optimizer is made after a forward pass, while the parameters of the outermost module are whole.

says: while the parameters were unsharded
"""

import torch
from common import net, rows_of, start
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

rank, size = start()
model = net()
fully_shard(model, reshard_after_forward=False)
rows, classes = rows_of(rank)
with torch.no_grad():
    model(rows)
torch.cuda.synchronize()  # right: model.reshard()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = cross_entropy(model(rows), classes)
    opt.zero_grad()
    loss.backward()
    opt.step()  # here
