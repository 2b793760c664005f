"""The recipe for unequal GPUs in docs/from-dataparallel-to-ddp.md, against one process with all rows."""

import re
import sys
from pathlib import Path
from textwrap import indent

import pytest
import torch
import torch.distributed as dist
from ddpruns import environment
from processes import run
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.data import DataLoader, TensorDataset

PAGE = Path(__file__).parent.parent / "docs" / "from-dataparallel-to-ddp.md"
(RECIPE,) = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
BEFORE = """
import os
import torch
from torch import distributed as dist, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank, device = dist.get_rank(), torch.device("cpu")
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(100, 4).double(), torch.randint(3, (100,)))
model = DistributedDataParallel(nn.Linear(4, 3).double())
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
for epoch in range(2):
"""
AFTER = """
torch.save(model.module.state_dict(), f"rank-{rank}.pt")
dist.destroy_process_group()
os._exit(0)  # an orderly exit aborts now and then (pytorch/pytorch#179291)
"""


def made(rows=100):
    """Make the data and the model that each rank makes."""
    torch.manual_seed(0)
    tensors = torch.randn(100, 4).double(), torch.randint(3, (100,))
    return TensorDataset(*(tensor[:rows] for tensor in tensors)), nn.Linear(4, 3).double()


def order_of(epoch):
    return torch.randperm(100, generator=torch.Generator().manual_seed(epoch))


def alone(rank, epoch, rows):
    """Run the recipe of a rank in this process, without the other; return its batches and gradients."""
    dataset, model = made(rows)
    names = {"rank": rank, "epoch": epoch, "dataset": dataset, "model": model, "device": "cpu"}
    names |= {"torch": torch, "F": F, "DataLoader": DataLoader}
    names["optimizer"] = torch.optim.SGD(model.parameters(), lr=0)
    exec(RECIPE, names)  # noqa: S102 - our own page
    return names["batches"], [parameter.grad for parameter in model.parameters()]


def test_batches_of_the_ranks_are_neighbours_and_only_the_short_last_batch_is_missing():
    drawn = [alone(rank, 3, 100)[0] for rank in range(2)]
    assert [[len(batch) for batch in batches] for batches in drawn] == [[10] * 3, [20] * 3]
    steps = zip(*drawn, strict=True)
    assert [index for step in steps for batch in step for index in batch] == order_of(3)[:90].tolist()


def test_the_mean_of_the_ranks_gradients_is_that_of_the_whole_batch():
    dataset, model = made(30)
    x, y = dataset.tensors
    expected = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    of_ranks = [alone(rank, 0, 30)[1] for rank in range(2)]
    for first, second, whole in zip(*of_ranks, expected, strict=True):
        torch.testing.assert_close((first + second) / 2, whole)


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")
def test_two_ranks_train_as_one_process_with_the_whole_batch(tmp_path):
    (tmp_path / "unequal.py").write_text(BEFORE + indent(RECIPE, "    ") + AFTER)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = run([*command, "unequal.py"], cwd=tmp_path, env=environment(tmp_path, OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr[-3000:]
    dataset, model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for epoch in range(2):
        for batch in order_of(epoch)[:90].split(30):
            x, y = dataset[batch]
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"rank-{rank}.pt"), model.state_dict())
