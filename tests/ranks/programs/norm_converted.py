"""A norm with an activation of its own is converted to a SyncBatchNorm, which has none.

says: convert_sync_batchnorm puts a plain SyncBatchNorm in the place of NormAndReLU
"""

import torch
from common import rows_of, start
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


class NormAndReLU(nn.BatchNorm1d):
    """Normalises, and cuts off what is below zero."""

    def forward(self, rows):
        """Return the rows."""
        return super().forward(rows).relu()


rank, size = start()
norm = NormAndReLU(12)
norm = norm.train()  # right: norm = nn.Sequential(nn.BatchNorm1d(12), nn.ReLU())
layers = nn.Sequential(nn.Linear(6, 12), norm, nn.Linear(12, 3))
model = nn.SyncBatchNorm.convert_sync_batchnorm(layers)  # here
model = DistributedDataParallel(model.cuda())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    rows, classes = rows_of(rank, step=step)
    opt.zero_grad()
    cross_entropy(model(rows), classes).backward()
    opt.step()
