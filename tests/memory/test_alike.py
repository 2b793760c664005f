"""Stand-ins for replicas change nothing in a prediction, and are not used where replicas differ."""

from pathlib import Path

import pytest
import torch
from fastpart import mostly_slow
from torch import nn
from torch.utils.checkpoint import checkpoint

from dpdemo.memory import predict_memory
from dpdemo.memory.alike import Alike
from dpdemo.results.memorydata import Training


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def had_stand_ins(monkeypatch):
    """The GPUs with stand-ins in each step, in order; a step that is not sound is followed by one without."""
    found, lanes = [], Alike.lanes

    def noting(self, given):
        found.append({index for _, others in self._calls for index in others})
        return lanes(self, given)

    monkeypatch.setattr(Alike, "lanes", noting)
    return found


def predict(model, gpus=4, rows=8, **given):
    inputs = {"inputs": [f"{rows}x64"]} if ":" in model else {}
    return predict_memory(model=model, gpus=gpus, batch_size=rows, **inputs, **given).gpus


class Several(nn.Module):
    """A model whose output is a structure, of which one part needs no gradient."""

    def __init__(self):
        super().__init__()
        self.used, self.frozen, self.unused = nn.Linear(64, 300), nn.Linear(64, 9), nn.Linear(64, 64)
        self.frozen.requires_grad_(requires_grad=False)

    def forward(self, x):
        return {"used": [self.used(x), None], "frozen": self.frozen(x)}


class Remembers(nn.Module):
    """A model that keeps a tensor of its first call on each GPU."""

    def __init__(self):
        super().__init__()
        self.layer, self.kept = nn.Linear(64, 64), {}

    def forward(self, x):
        if x.device not in self.kept:
            self.kept[x.device] = torch.ones(1000, 64, device=x.device)
        return self.layer(x) * self.kept[x.device][0]


class Elsewhere(nn.Module):
    """A model whose first replica alone works on another GPU, too."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        if x.device.index == 0:
            torch.ones(5000, 64, device="cuda:3")
        return self.layer(x)


class Reentrant(nn.Module):
    """A model whose blocks are recomputed by a backward pass inside the backward pass."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(3))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x


ALIKE = {
    "linear": {}, "test_alike:Several": {}, "transformer": {}, "rnn": {}, "cnn": {}, "partial": {},
    "hybrid": {},
    "wide, output elsewhere": {"model": "linear", "output_device": 2},
    "accumulated": {"model": "cnn", "training": Training("sgd", zero_grad="to-zero")},
    "inference": {"model": "cnn", "training": Training(inference=True)},
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_slow(ALIKE, 5))
def test_stand_ins_change_no_byte(name, monkeypatch, had_stand_ins):
    given = {"model": name, **ALIKE[name]}
    found = predict(**given)
    assert had_stand_ins[-1]
    monkeypatch.setattr(Alike, "_groups", lambda *_: (0, []))
    assert predict(**given) == found


@pytest.mark.parametrize("model", [f"test_alike:{name}" for name in ("Remembers", "Elsewhere", "Reentrant")])
def test_where_replicas_differ_after_all_each_runs(model, monkeypatch, had_stand_ins):
    found = predict(model)
    assert had_stand_ins[0]
    assert not had_stand_ins[-1]
    monkeypatch.setattr(Alike, "_groups", lambda *_: (0, []))
    assert predict(model) == found


def test_chunks_of_other_sizes_or_numbers_are_run(had_stand_ins):
    predict("linear", rows=7)  # of 2, 2, 2 and 1
    assert had_stand_ins[-1] == {2}
    predict_memory(
        model="test_alike:Several",
        gpus=4,
        batch_size=8,
        inputs=lambda rows: torch.arange(64.0 * rows).view(rows, 64),
    )
    assert not had_stand_ins[-1]


class Opaque(nn.Module):
    """A model with an output that gather opens, though it is neither a list nor a dict."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        return Pair([self.layer(x), x.sum(1)])


class Pair:
    """Two tensors."""

    def __init__(self, parts):
        self.parts = [*parts]

    def __iter__(self):
        return iter(self.parts)

    def mean(self):
        return self.parts[0].mean()


def loss_of_pair(pair):
    return pair.mean()


def test_outputs_that_cannot_be_opened_are_computed(had_stand_ins):
    predict("test_alike:Opaque", training=Training(loss="test_alike:loss_of_pair"))
    assert had_stand_ins[0]
    assert not had_stand_ins[-1]
