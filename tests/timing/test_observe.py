"""Bytes and operators, against the ledger of genuine steps over other numbers of GPUs."""

import pytest
import torch
from fastpart import mostly_slow
from torch import nn

from dpdemo.config.load import make_config
from dpdemo.memory.case import batches_of, opened_stepper
from dpdemo.memory.hardware import Hardware
from dpdemo.results.memorydata import Training
from dpdemo.timing.links import LINKS
from dpdemo.timing.observe import observe_workload
from dpdemo.timing.predict import predict_speedup

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="real GPUs are visible on this machine")

PHASES = {"scatter": "scatter", "replicate": "replicate", "gather": "gather"}


def moved_by_ledger(config, rows, gpus):
    """Make a genuine step over so many GPUs, and read the bytes between them by phase."""
    pair = make_config({**config.values(), "gpus": gpus, "batch_size": rows})
    with opened_stepper(
        pair, Training(optimizer="sgd"), Hardware(), batches_of(pair, None), lambda _: None
    ) as stepper:
        stepper.measure(rows)
        before = stepper.gpus.bytes_moved_in
        stepper.step_again(rows)
        after = stepper.gpus.bytes_moved_in
    found = {}
    for (phase, source, target), num_bytes in after.items():
        if source is None or target is None:
            continue
        name = PHASES.get(phase)
        if phase == "backward":
            name = "output gradients" if source == 0 else "reduce"
        found[name] = found.get(name, 0) + num_bytes - before.get((phase, source, target), 0)
    return found


@pytest.mark.parametrize("gpus", [3, 4])
@pytest.mark.parametrize("model", mostly_slow(["linear", "cnn", "transformer"], 3))
def test_the_bytes_of_a_divided_batch_are_those_of_the_ledger(model, gpus):
    config = make_config({"model": model, "batch_size": 10})
    way, _ = predict_speedup(observe_workload(config), LINKS["pcie4"], gpus).ways
    predicted = {name: num_bytes for name, num_bytes in way.num_bytes.items() if num_bytes}
    assert predicted == moved_by_ledger(config, 10, gpus)


class Tied(nn.Module):
    """A model with a tied weight, a frozen part, a loss of its own and integer inputs."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        logits = self.head(torch.relu(self.frozen(self.embed(ids))))
        return {"loss": logits.mean().unsqueeze(0), "logits": logits}


def test_a_model_of_ones_own_is_weighed_by_its_step(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(tmp_path))
    source = "from test_observe import Tied\ndef factory():\n    return Tied()\n"
    (tmp_path / "own_model.py").write_text(source)
    config = make_config({"model": "own_model:factory", "batch_size": 4})
    work = observe_workload(config, ["4x16:int64<50"])
    tied_once, frozen = 50 * 8, 8 * 8 + 8
    assert work.num_parameters == tied_once + frozen
    assert work.gradient_bytes == 4 * tied_once
    assert work.parameter_bytes == 4 * (tied_once + frozen)
    assert work.input_bytes == 4 * 16 * 8
    assert work.output_bytes == 4 * (4 * 16 * 50 + 1)
    assert work.output_gradient_bytes == 4  # of the loss alone
    assert (work.launches.modules, work.launches.tensors) == (4, 3)
    assert work.launches.forward >= 4
