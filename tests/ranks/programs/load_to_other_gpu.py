"""torch.load puts a checkpoint back on the GPU of rank 0, on every rank.

says: Rank 1 put
says: on cuda:0, the GPU of rank 0
"""

import torch
import torch.distributed as dist
from common import net, rows_of, start
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
model = DistributedDataParallel(net(), device_ids=[rank])
opt = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(4):
    rows, classes = rows_of(rank, step=step)
    cross_entropy(model(rows), classes).backward()
    opt.step()
    opt.zero_grad()
    if step == 1:
        if rank == 0:
            torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, "last.pt")
        dist.barrier()
        last = torch.load("last.pt")  # here; right: last = torch.load("last.pt", map_location=f"cuda:{rank}")
        model.load_state_dict(last["model"])
        opt.load_state_dict(last["opt"])
