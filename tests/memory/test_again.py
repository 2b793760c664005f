"""What a step's log is used again for is what would be made: the optimizer's steps, and a first pass."""

from types import SimpleNamespace

import pytest
import torch
from fastpart import mostly_slow
from torch import nn

from dpdemo.memory import largest_batch
from dpdemo.memory.again import Again
from dpdemo.results.memorydata import Training
from dpdemo.virtual import virtual_gpus


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(__import__("pathlib").Path(__file__).parent))


class Remembers(nn.Module):
    """A model that keeps a tensor of each number of rows."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.kept = {}

    def forward(self, x):
        kept = self.kept.setdefault((len(x), x.device), torch.ones(len(x), 64, device=x.device))
        return self.layer(x) * kept


class Words(nn.Module):
    """An embedding whose gradients are sparse: their memory grows with the batch."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(5000, 64, sparse=True)

    def forward(self, ids):
        return self.words(ids)


def counting(monkeypatch, name, answer=None):
    """Count the truths that a method of `Again` returns, or let it return nothing."""
    original, truths = getattr(Again, name), []

    def method(self):
        found = original(self) if answer is None else answer
        truths.append(bool(found))
        return found

    monkeypatch.setattr(Again, name, method)
    return truths


@pytest.mark.parametrize(
    ("model", "training", "inputs"),
    mostly_slow(
        [
            ("linear", Training("adam"), None),
            ("transformer", Training("adamw"), None),
            ("cnn", Training("momentum"), None),
            ("rnn", Training("adafactor"), None),
            ("test_again:Remembers", Training("momentum"), ["32x64"]),
        ],
        5,
    ),
)
def test_the_search_and_its_remedies_are_those_of_steps_that_are_all_made(
    model, training, inputs, monkeypatch
):
    given = {"model": model, "gpus": 3, "training": training, "batch_size": 48, "input_size": 24}
    given |= {"gpu_memory": "100MiB", "reserve": 0, "inputs": inputs}
    if inputs:
        del given["input_size"], given["batch_size"]
    updates, passes = (counting(monkeypatch, name) for name in ("knows_updates", "put_pass_back"))
    found = largest_batch(**given)
    keeps = model == "test_again:Remembers"  # it allocates something that stays: its sizes follow no law
    assert any(updates)
    assert any(passes) is not keeps
    counting(monkeypatch, "knows_updates", False)
    counting(monkeypatch, "put_pass_back", [])
    assert largest_batch(**given) == found
    assert keeps or "gradient accumulation" in {remedy.name for remedy in found.fit.remedies}


def test_steps_on_sparse_gradients_are_made_each_time(monkeypatch):
    updates = counting(monkeypatch, "knows_updates")
    given = {"model": "test_again:Words", "gpus": 1, "inputs": ["8x32:int64"], "training": Training("sgd")}
    assert largest_batch(gpu_memory="100MiB", reserve=0, **given).fit.largest > 100
    assert len(updates) > 2
    assert not any(updates)


@pytest.mark.parametrize("change", ["another layout", "none", "another dtype"])
def test_steps_are_used_again_for_gradients_like_those_alone(change):
    with virtual_gpus(1, storage="meta") as gpus:
        log = gpus.log()
        layer = nn.Linear(4, 8).cuda()
        optimizer = torch.optim.Adam(layer.parameters())
        layer(torch.ones(2, 4, device="cuda")).sum().backward()
        again, marks = Again(log, layer), [len(log)]
        for _ in range(2):
            optimizer.step()
            marks.append(len(log))
        again.keep_updates(marks)
        assert again.knows_updates()
        changed = {
            "another layout": lambda grad: grad.t().contiguous().t(),
            "none": lambda _: None,
            "another dtype": lambda grad: grad,
        }[change](layer.weight.grad)
        if change == "another dtype":
            layer.half()
            changed = torch.zeros_like(layer.weight)
        layer.weight.grad = changed
        assert not again.knows_updates()


def test_steps_that_touch_what_was_there_before_are_not_kept():
    log = [(0, 1, 0, 512, 0, "", 0), (0, 2, 0, 512, 0, "optimizer step", 0), (1, 1)]
    again = Again(log, SimpleNamespace(parameters=list))
    again.keep_updates([1, 2, 3])
    assert not again.updates
    again.keep_updates([1, 1, 2])
    assert again.updates == [[], [(0, -2, 0, 512, 0, "optimizer step", 0)]]
