"""Wrong programs, one after the other: each has a model and an optimizer of its own, and one mistake."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = 3
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
ROWS = TensorDataset(torch.randn(32, 6), torch.arange(32) % 3)


def average(model, divisor=world, names=""):
    for name, parameter in model.named_parameters():
        if name.endswith(names):
            dist.all_reduce(parameter.grad)
            parameter.grad /= divisor


def nothing(_):
    pass


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    average(model)


def halve_on_rank_0(model):
    for parameter in model.parameters():
        parameter.grad *= 0.5 if rank == 0 else 1.0


def drop_on_rank_1(model):
    if rank == 1:
        model.module[2].weight.grad = None


def tokens(model, x, y):
    return cross_entropy(model(x), torch.where(x[:, 0] > 0, y, -100))


def compare(model, x, _):
    rows = normalize(model(x))
    return cross_entropy(rows @ rows.T, torch.arange(len(x)).cuda())


def covariance(model, x, _):
    rows = model(x) - model(x).mean(0)
    return (rows.T @ rows / len(x) - torch.eye(3).cuda()).square().sum()


def root(model, x, y):
    return cross_entropy(model(x), y).sqrt()


def mean(model, x, y):
    return cross_entropy(model(x), y)


# the loss, what is done with the gradients, and whether the model is under DistributedDataParallel
CASES = {
    "sum": (lambda model, x, y: cross_entropy(model(x), y, reduction="sum"), nothing, True),
    "times ranks": (lambda model, x, y: world * mean(model, x, y), nothing, True),
    "divided": (lambda model, x, y: mean(model, x, y) / world, nothing, True),
    "module": (lambda model, x, y: mean(model.module, x, y), nothing, True),
    "tokens": (tokens, nothing, True),
    "compare": (compare, nothing, True),
    "covariance": (covariance, nothing, True),
    "root": (root, nothing, True),
    "changed": (mean, halve_on_rank_0, True),
    "dropped": (mean, drop_on_rank_1, True),
    "summed": (mean, lambda model: average(model, 1), False),
    "twice": (mean, lambda model: average(model, world**2), False),
    "some": (mean, lambda model: average(model, world, "weight"), False),
    "clipped": (mean, clip, False),
}
models = {}
for name, (_, _, is_wrapped) in CASES.items():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3)).cuda()
    models[name] = DistributedDataParallel(net, device_ids=[rank]) if is_wrapped else net
optimizers = {name: torch.optim.SGD(model.parameters(), lr=0.1) for name, model in models.items()}
for name, (loss, change, _) in CASES.items():
    model, optimizer = models[name], optimizers[name]
    loader = DataLoader(ROWS, 4, sampler=DistributedSampler(ROWS))
    for _, (x, y) in zip(range(STEPS), loader, strict=False):
        optimizer.zero_grad()
        loss(model, x.cuda(), y.cuda()).backward()
        change(model)
        optimizer.step()
dist.destroy_process_group()
