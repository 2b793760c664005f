"""Each rank names the folder of the run by its own process.

says: Each rank made a path of its own
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from common import net, start

rank, size = start()
names = [f"run-{os.getpid()}"]
dist.barrier()  # right: dist.broadcast_object_list(names)
Path(names[0]).mkdir(exist_ok=True)  # here
model = net()
torch.save(model.state_dict(), f"{names[0]}/part{rank}.pt")
