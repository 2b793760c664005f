"""A pipeline accumulates gradients over two steps: the second divides the first one's again.

says: This step of a pipeline divides the gradients of the steps before it by 4
"""

import torch
from common import rows_of, start
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import mse_loss

rank, size = start()
device = torch.device("cuda", rank)
stage = PipelineStage(nn.Linear(6, 6).cuda(), rank, size, device)
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=mse_loss)
opt = torch.optim.SGD(stage.submod.parameters(), lr=0.1)
for step in range(4):
    rows, _ = rows_of(0, step=step)
    schedule.step(rows) if rank == 0 else schedule.step(target=rows)  # here
    if step % 2:  # right: if step >= 0:
        opt.step()
        opt.zero_grad()
