"""Features of all ranks are gathered for a contrastive loss, by a function without a gradient.

says: uses what all_gather gathered, through which no gradient goes back
"""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional
from common import net, rows_of, start
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
model = DistributedDataParallel(net(), device_ids=[rank])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    rows, _ = rows_of(rank, 4, step=step)
    features = model(rows)
    every = [torch.empty_like(features) for _ in range(size)]
    dist.all_gather(every, features)  # here; right: every = dist.nn.functional.all_gather(features)
    scores = features @ torch.cat(list(every)).T
    loss = cross_entropy(scores, 4 * rank + torch.arange(4, device="cuda"))
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        dist.all_gather([torch.empty_like(features) for _ in range(size)], features)
