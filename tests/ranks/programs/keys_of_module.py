"""A checkpoint of the wrapper is loaded into the bare model, whose keys lack `module.`.

says: load_state_dict took none of the 4 saved tensors: saved keys have `module.` in them
"""

import torch
import torch.distributed as dist
from common import net, rows_of, start
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
old = DistributedDataParallel(net(), device_ids=[rank])
if rank == 0:
    torch.save(old.state_dict(), "old.pt")  # right: torch.save(old.module.state_dict(), "old.pt")
dist.barrier()
model = net()
model.load_state_dict(torch.load("old.pt", map_location="cpu"), strict=False)  # here
model = DistributedDataParallel(model, device_ids=[rank])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    rows, classes = rows_of(rank, step=step)
    cross_entropy(model(rows), classes).backward()
    opt.step()
    opt.zero_grad()
