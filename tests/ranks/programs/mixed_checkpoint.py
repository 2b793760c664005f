"""The random state of each rank is saved under one key.

says: The checkpoint keeps one rank's value of `random`, which differs between ranks
"""

import torch
import torch.distributed.checkpoint as dcp
from common import net, rows_of, start
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

rank, size = start()
model = net()
fully_shard(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
rows, classes = rows_of(rank)
cross_entropy(model(rows), classes).backward()
opt.step()
key = "random"  # right: key = f"random{rank}"
dcp.save({"model": model.state_dict(), key: torch.get_rng_state(), "step": 1}, checkpoint_id="saved")  # here
