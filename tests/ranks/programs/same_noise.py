"""All ranks draw the same noise and the same steps, by one seed.

note: drew the same random numbers on all ranks
"""

import torch
from common import rows_of, start
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
model = DistributedDataParallel(torch.nn.Linear(6, 6).cuda(), device_ids=[rank])
opt = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(7)  # right: torch.manual_seed(7 + rank)
for step in range(5):
    rows, _ = rows_of(rank, step=step)
    noise = torch.randn_like(rows)  # here
    loss = (model(rows + noise) - noise).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
