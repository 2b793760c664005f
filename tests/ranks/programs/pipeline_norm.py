"""The first step of a pipeline calls a stage with memory that holds no rows, and BatchNorm remembers it.

says: The search for shapes between stages called this stage
"""

import torch
from common import start
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import mse_loss

rank, size = start()
device = torch.device("cuda", rank)
module = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)).cuda()
example = torch.zeros(2, 6, device=device, requires_grad=rank > 0)
given = {"input_args": (example,), "output_args": (torch.zeros(2, 6, device=device, requires_grad=True),)}
given = {}  # right: given = dict(given)
schedule = ScheduleGPipe(PipelineStage(module, rank, size, device, **given), 4, loss_fn=mse_loss)
rows = torch.randn(8, 6, device=device)
schedule.step(rows) if rank == 0 else schedule.step(target=rows)  # here
