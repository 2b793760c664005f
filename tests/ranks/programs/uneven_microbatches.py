"""A batch of 6 rows is cut into 4 micro-batches: the second stage returns rows that do not exist.

says: 6 rows in 4 micro-batches do not come out even
alone: it is stopped
"""

import torch
from common import start
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

rank, size = start()
device = torch.device("cuda", rank)
stage = PipelineStage(nn.Linear(6, 6).cuda(), rank, size, device)
schedule = ScheduleGPipe(stage, n_microbatches=4)
rows = torch.randn(6, 6, device=device)  # right: rows = torch.randn(8, 6, device=device)
with torch.no_grad():
    out = schedule.eval(rows) if rank == 0 else schedule.eval()  # here
