"""A user's own model of transformers is predicted as one that was called before it was wrapped."""

import sys
from types import ModuleType

import pytest
from torch import nn

from dpdemo.memory import predict_memory


class Records(nn.Module):
    """It does what transformers' models do: the first call puts in hooks, into dicts that replicas share."""

    _can_record_outputs = ("layer",)

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.seen = []

    def forward(self, x):
        install(self)
        self.seen.clear()
        output = self.layer(x)
        (recorded,) = self.seen
        return output + recorded


def install(model):
    if not getattr(model, "_output_capturing_hooks_installed", False):
        model.layer.register_forward_hook(lambda _, __, output: model.seen.append(output))
        model._output_capturing_hooks_installed = True


@pytest.fixture
def library(monkeypatch):
    """Stand in for the part of transformers that is asked: tests run without it."""
    capturing = ModuleType("transformers.utils.output_capturing")
    capturing.maybe_install_capturing_hooks = install
    for name in ("transformers", "transformers.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, capturing.__name__, capturing)


def predicted(**training):
    return predict_memory(model=f"{__name__}:Records", gpus=2, inputs=["8x8"], **training)


@pytest.mark.usefixtures("library")
def test_replicas_find_the_hooks_in_place_and_the_report_says_so():
    report = predicted()
    assert report.gpus[1].peak_bytes > 0
    assert [note for note in report.notes if "called before it was wrapped" in note]


def test_without_transformers_no_model_is_touched():
    from dpdemo import RunError

    with pytest.raises(RunError, match="in replica 1"):
        predicted()
