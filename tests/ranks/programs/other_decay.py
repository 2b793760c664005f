"""Each rank draws its weight decay itself.

says: The weight decay differs between ranks from step 1 on
"""

import numpy as np
import torch
from common import net, rows_of, start
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
draw = np.random.default_rng(rank)  # right: draw = np.random.default_rng(1)
model = DistributedDataParallel(net(), device_ids=[rank])
opt = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=10 ** draw.uniform(-4, -1))
for step in range(5):
    rows, classes = rows_of(rank, step=step)
    loss = cross_entropy(model(rows), classes)
    opt.zero_grad()
    loss.backward()
    opt.step()  # here
