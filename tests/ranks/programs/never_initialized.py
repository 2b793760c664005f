"""A model made on the meta device gets memory, and values for all layers but one.

says: to_empty left 2.weight, 2.bias without values
"""

import torch
from common import rows_of, start
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

rank, size = start()
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.Linear(12, 3))
fully_shard(model)
model.to_empty(device="cuda")  # here
model[0].weight.data.normal_()
nn.init.zeros_(model[0].bias)
model[1].reset_parameters()
for layer in model[:2]:  # right: for layer in [model[2]]:
    layer.reset_parameters()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    rows, classes = rows_of(rank, step=step)
    opt.zero_grad()
    cross_entropy(model(rows), classes).backward()
    opt.step()
