"""The schedule is made for the steps of one rank, and accelerate steps it once for each rank.

says: The learning rate was at its end, 0, in the last
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
torch.manual_seed(0)
data = TensorDataset(torch.randn(128, 6), torch.randint(0, 3, (128,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(6, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
all_steps = 2 * len(loader)
model, opt, loader = accelerator.prepare(model, opt, loader)
total = 2 * len(loader)  # right: total = all_steps
schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: max(0.0, 1 - step / total))
schedule = accelerator.prepare(schedule)
for _ in range(2):
    for rows, classes in loader:
        loss = cross_entropy(model(rows), classes)
        accelerator.backward(loss)
        opt.step()
        schedule.step()  # here
        opt.zero_grad()
accelerator.end_training()
