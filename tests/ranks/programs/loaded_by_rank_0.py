"""Only rank 0 loads the checkpoint before the model is sharded.

says: Rank 0 loaded a checkpoint and rank 1 none
alone: another model's state, loaded by all ranks, would be taken for this one's
"""

import torch
import torch.distributed as dist
from common import net, rows_of, start
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

rank, size = start()
if rank == 0:
    torch.save(net().state_dict(), "old.pt")
dist.barrier()
model = net()
loading = [0]  # right: loading = [0, 1]
if rank in loading:
    model.load_state_dict(torch.load("old.pt", map_location="cpu"))  # here
fully_shard(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
rows, classes = rows_of(rank)
cross_entropy(model(rows), classes).backward()
opt.step()
