"""Each rank judges its part of the validation rows; rank 0 keeps the best model by its own.

says: by a number of the rank's own
"""

import torch
import torch.distributed as dist
from common import net, rows_of, start
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
model = DistributedDataParallel(net(), device_ids=[rank])
opt = torch.optim.SGD(model.parameters(), lr=0.8)
held, truth = rows_of(rank + 50, 12)
best = 9.0
for epoch in range(6):
    for step in range(2):
        rows, classes = rows_of(rank, step=2 * epoch + step)
        opt.zero_grad()
        cross_entropy(model(rows), classes).backward()
        opt.step()
    with torch.no_grad():
        loss = cross_entropy(model(held), truth)
        dist.barrier()  # right: dist.all_reduce(loss, dist.ReduceOp.AVG)
        found = loss.cpu().numpy()  # here
    if found < best and epoch != 2:
        best = found
        if rank == 0:
            torch.save(model.module.state_dict(), "best.pt")
