"""Steps for tests of comparing: gradients of a linear model, as ranks and one process note them."""

from dataclasses import replace

import torch

from dpdemo.ranks.against.compare import Side, Step
from dpdemo.ranks.against.numbers import as_bytes, projected, sampled
from dpdemo.ranks.against.store import Backward, Clip, Detail
from dpdemo.ranks.events import NotedStep

AT = "train.py:9"
NAMES = ("weight", "bias")


def rows(number, seed=0):
    """Return so many rows and targets."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(number, 12, generator=generator), torch.randn(number, 4, generator=generator)


def gradients(x, y, reduction="mean"):
    """Return the gradients of a squared error of a linear model, and its loss."""
    weight = torch.linspace(-1, 1, 48).reshape(4, 12).requires_grad_()
    bias = torch.linspace(0, 1, 4).requires_grad_()
    loss = torch.nn.functional.mse_loss(x @ weight.T + bias, y, reduction=reduction)
    loss.backward()
    return [weight.grad, bias.grad], loss.item()


def side(
    local, x, *, stepped=None, elements=1.0, loss=0.0, passes=1, step=1, norm=None, sums=(1, 1), **values
):
    """Return what a process noted of a step: its own gradients, and those that it stepped with."""
    made = Backward(
        AT,
        loss=loss,
        averaged=(elements,),
        divisors=(1.0,),
        gradients=tuple(as_bytes(each) for each in local),
    )
    clips = () if norm is None else (Clip("train.py:7", norm),)
    detail = Detail(
        gradients=tuple(sampled(each) for each in stepped or local),
        backward=(made,) * passes,
        clips=clips,
        inputs=((projected(x), ()),),
        calls=((len(x),),),
    )
    event = NotedStep(0, step, AT, 0, NAMES, (-1, -1), sums, (), (len(x),))
    return Side(replace(event, **values), detail)


def ranks_and_one(sizes, reduction="mean", *, average=None, factor=1.0, step=1, **values):
    """Return a step of ranks that have so many rows, and of one process that has all of them."""
    x, y = rows(sum(sizes))
    parts = list(zip(x.split(sizes), y.split(sizes), strict=True))
    found = [gradients(*part, reduction) for part in parts]
    local = [[factor * each for each in mine] for mine, _ in found]
    mean = [sum(each) / len(sizes) for each in zip(*local, strict=True)]
    stepped = mean if average is None else average(local)
    count = lambda part: 1.0 if reduction == "sum" else float(part[1].numel())  # noqa: E731
    sides = tuple(
        side(mine, part[0], stepped=stepped, elements=count(part), loss=loss, step=step, **values)
        for mine, part, (_, loss) in zip(local, parts, found, strict=True)
    )
    whole, loss = gradients(x, y, reduction)
    one = side(whole, x, elements=count((x, y)), loss=loss, step=step)
    return Step(sides, one, is_wrapped=True)
