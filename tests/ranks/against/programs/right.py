"""Right programs, one after the other: each has a model and optimizers of its own."""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as collectives
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, normalize
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = 3
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
ROWS = TensorDataset(torch.randn(32, 6), torch.arange(32) % 3)


def wrapped(model):
    return DistributedDataParallel(module=model.cuda(), device_ids=[rank])


def layers():
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Dropout(0.2), nn.Linear(12, 3))


def batches(size=4):
    loader = DataLoader(ROWS, size, sampler=DistributedSampler(dataset=ROWS), num_workers=1)
    return zip(range(STEPS), ((x.cuda(), y.cuda()) for x, y in loader), strict=False)


def divided_by_the_batch_size(model, x, y):
    return cross_entropy(model(x), y, reduction="sum") / 4


def of_columns(model, x, _):
    return model(torch.stack([x, 2 * x, x]))[0].square().mean()


def of_all_ranks_tokens(model, x, y):
    labels = torch.where(x[:, 0] > 0, y, -100)
    count = (labels >= 0).sum()
    dist.all_reduce(count)
    return cross_entropy(model(x), labels, reduction="sum") * world / count


def contrastive(model, x, _):
    a, b = (torch.cat(collectives.all_gather(normalize(model(part)))) for part in (x, -x))
    return cross_entropy(a @ b.T, torch.arange(len(a)).cuda())


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.scale = layers(), nn.Parameter(torch.tensor(2.0))
        unseeded = torch.Generator()
        unseeded.seed()
        self.register_buffer("shift", torch.randn(6, generator=unseeded))
        self.teacher = nn.Parameter(torch.randn(3, generator=unseeded), requires_grad=False)

    def forward(self, x):
        return (self.layers(x + self.shift) - self.teacher) * self.scale


LOSSES = [divided_by_the_batch_size, of_columns, of_all_ranks_tokens, contrastive]
models = [wrapped(nn.GRU(6, 5) if loss is of_columns else Scaled()) for loss in LOSSES]
optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
shared, single, alone = wrapped(layers()), wrapped(layers()), layers().cuda()
parts = [torch.optim.Adam(shared.module[place].parameters()) for place in (0, 3)]
last = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (single, alone)]

for loss, model, optimizer in zip(LOSSES, models, optimizers, strict=True):
    for _, (x, y) in batches():
        optimizer.zero_grad()
        loss(model, x, y).backward()
        optimizer.step()
for _, (x, y) in batches():  # two optimizers after one backward pass, each clipped
    cross_entropy(shared(x), y).backward()
    for part in parts:
        nn.utils.clip_grad_norm_(part.param_groups[0]["params"], 0.1)
        part.step()
        part.zero_grad()
for _, (x, _) in batches(1):  # a batch of one row: its sum is a mean
    mse_loss(single(x), torch.ones(1, 3).cuda(), reduction="sum").backward()
    last[0].step()
    last[0].zero_grad()
for _, (x, y) in batches():  # gradients averaged by hand
    cross_entropy(alone(x), y).backward()
    for parameter in alone.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world
    last[1].step()
    last[1].zero_grad()
dist.destroy_process_group()
