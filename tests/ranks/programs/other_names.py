"""A checkpoint of another class: its keys are called `body` and `head`.

says: load_state_dict took none of the 2 saved tensors: it was given
"""

import torch
from common import net, rows_of, start
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

rank, size = start()
saved = {"body.weight": torch.zeros(12, 6), "head.weight": torch.zeros(3, 12)}
names = {
    "body.weight": "0.weights",
    "head.weight": "2.weights",
}  # right: names = {"body.weight": "0.weight", "head.weight": "2.weight"}
model = net()
model.load_state_dict({names[key]: value for key, value in saved.items()}, strict=False)  # here
model = DistributedDataParallel(model, device_ids=[rank])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
rows, classes = rows_of(rank)
cross_entropy(model(rows), classes).backward()
opt.step()
