"""The loss of unequal ranks under genuine DistributedDataParallel, against the whole batch on one device."""

import sys

import pytest
import torch.distributed as dist
from ddpruns import environment
from processes import run

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")

RANK = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from dpdemo.arithmetic.weights import split_by_weights
from dpdemo.splitting.losses import loss_parts, mean_over_ranks

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Linear(4, 3).double()
for weights in [(1, 2, 3), (5, 1, 1), (1, 1, 1)]:
    for rows in (6, 13, 31):
        x, y = torch.randn(rows, 4).double(), torch.randint(3, (rows,))
        valid = torch.rand(rows) < 0.8
        valid[0] = True
        model.zero_grad()
        losses = F.cross_entropy(model(x), y, reduction="none")
        expected = torch.autograd.grad((losses * valid).sum() / valid.sum(), list(model.parameters()))
        start = sum(split_by_weights(rows, weights).rows()[:rank])
        own = slice(start, start + split_by_weights(rows, weights).rows()[rank])
        wrapped = DistributedDataParallel(model)
        parts = loss_parts(F.cross_entropy(wrapped(x[own]), y[own], reduction="none"), valid[own])
        mean_over_ranks(parts).backward()
        for parameter, gradient in zip(model.parameters(), expected):
            torch.testing.assert_close(parameter.grad, gradient)
open("equal-" + os.environ["RANK"], "w").close()
os._exit(0)  # an orderly exit aborts now and then (pytorch/pytorch#179291)
"""


@pytest.mark.slow
def test_gradients_are_the_whole_batchs_for_any_rows_of_the_ranks(tmp_path):
    (tmp_path / "rank.py").write_text(RANK)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "3",
        "rank.py",
    ]
    done = run(command, cwd=tmp_path, env=environment(tmp_path, OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(list(tmp_path.glob("equal-*"))) == 3
