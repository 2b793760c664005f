"""Gradients of one step: DataParallel on virtual GPUs beside torch's own DDP in processes, and one device."""

import json
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ddp_gradients import make
from processes import run
from torch import nn

from dpdemo.virtual import virtual_gpus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed"),
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="CUDA GPUs are visible: these gradients are the CPU's"
    ),
]
SEED = 3


class LossInside(nn.Module):
    """A model that returns its own mean loss, one number a replica."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x).pow(2).mean().reshape(1)


def of_ddp(ranks, rows):
    program = str(Path(__file__).parent.parent / "ddp_gradients.py")
    words = [sys.executable, program, str(ranks), str(rows), str(SEED)]
    found = json.loads(run(words, check=True).stdout)
    return {name: torch.tensor(values) for name, values in found.items()}


def of_data_parallel(gpus, rows, *, loss_inside=False):
    model, batch = make(rows, SEED)
    with virtual_gpus(gpus):
        model.cuda()
        if loss_inside:
            loss = nn.DataParallel(LossInside(model))(batch.cuda()).mean()
        else:
            loss = nn.DataParallel(model)(batch.cuda()).pow(2).mean()
        loss.backward()
        return {name: parameter.grad.cpu().clone() for name, parameter in model.named_parameters()}


def of_one_device(rows, weights):
    """Weigh the loss of each sample on the CPU."""
    model, batch = make(rows, SEED)
    (model(batch).pow(2).mean(1) * torch.tensor(weights)).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def are_close(found, expected):
    return all(torch.allclose(found[name], expected[name], rtol=1e-4, atol=1e-6) for name in expected)


@pytest.mark.parametrize(("count", "rows"), [(2, 8), (3, 12)])
def test_dataparallel_and_ddp_agree_where_ranks_divide_the_batch(count, rows):
    single = of_one_device(rows, [1 / rows] * rows)
    assert are_close(of_data_parallel(count, rows), single)
    assert are_close(of_data_parallel(count, rows, loss_inside=True), single)
    assert are_close(of_ddp(count, rows), single)


def test_elsewhere_each_weighs_samples_as_the_page_says():
    """5 rows over 2: DataParallel cuts 3 and 2, DDP draws sample 0 twice."""
    single = of_one_device(5, [1 / 5] * 5)
    assert are_close(of_data_parallel(2, 5), single)
    inside = of_data_parallel(2, 5, loss_inside=True)
    assert are_close(inside, of_one_device(5, [1 / 6] * 3 + [1 / 4] * 2))
    ranks = of_ddp(2, 5)
    assert are_close(ranks, of_one_device(5, [2 / 6] + [1 / 6] * 4))
    assert not are_close(inside, single)
    assert not are_close(ranks, single)
