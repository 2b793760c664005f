"""The way of one sample through an epoch."""

import sys

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from samples import drawn, observed, simulated

import dpdemo
from dpdemo.config.load import make_config
from dpdemo.epochs.epoch import make_dataset

SPY = """
import torch
from torch import nn

SEEN = []

class Spy(nn.Module):
    def __init__(self, input_size, output_size):
        super().__init__()
        self.fc = nn.Linear(input_size, output_size)

    def forward(self, x):
        SEEN.append((str(x.device), x.detach().cpu().clone()))
        return self.fc(x)
"""


@given(
    gpus=st.integers(1, 9),
    batch_size=st.integers(1, 40),
    data_size=st.integers(1, 120),
    drop_last=st.booleans(),
    data=st.data(),
)
@settings(deadline=None)
def test_a_sample_follows_the_chunks_of_its_batch(gpus, batch_size, data_size, drop_last, data):
    sample = data.draw(st.integers(0, data_size - 1))
    if drop_last and batch_size > data_size:
        return
    config = {"gpus": gpus, "batch_size": batch_size, "data_size": data_size, "drop_last": drop_last}
    trace = dpdemo.simulate(**config, trace_sample=sample).trace
    wanted = [
        (number, f"cuda:{replica}", row, int((batch == sample).nonzero()))
        for number, batch in enumerate(torch.arange(data_size).split(batch_size), 1)
        if len(batch) == batch_size or not drop_last
        for replica, chunk in enumerate(batch.chunk(gpus))
        for row, index in enumerate(chunk)
        if index == sample
    ]
    assert [(stop.batch, stop.device, stop.row, stop.output_row) for stop in trace.stops] == wanted


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("sample", [0, 17, 99])
def test_a_run_traces_the_sample_by_its_numbers(sample, shuffle, users_folder):
    """A model that keeps what reaches each replica finds the sample's own numbers there, and nowhere else."""
    users_folder({"spy_model.py": SPY})
    config = {"model": "spy_model:Spy", "gpus": [0, 1, 2], "shuffle": shuffle, "trace_sample": sample}
    (stop,) = dpdemo.run(**config, virtual=True).trace.stops
    seen = sys.modules["spy_model"].SEEN
    drawn = make_dataset(make_config(config)).rows(torch.tensor([sample]))[0]
    of_batch = [calls for number in range(4) for calls in [seen[number * 3 : number * 3 + 3]]]
    found = [
        (number, device, row)
        for number, calls in enumerate(of_batch, 1)
        for device, rows in calls
        for row, numbers in enumerate(rows)
        if torch.equal(numbers, drawn)
    ]
    assert found == [(stop.batch, stop.device, stop.row)]


def test_a_dropped_sample_has_no_stops():
    report = dpdemo.simulate(gpus=2, drop_last=True, trace_sample=95)
    assert report.trace.stops == ()
    assert "Sample 95      in no batch it is left out" in drawn(report)


@pytest.mark.parametrize("config", [{"gpus": 2}, {"strategy": "ddp", "processes": 2}])
def test_a_prediction_refuses_to_trace_a_shuffle(config):
    with pytest.raises(dpdemo.UsageError, match="expected an epoch in order to trace sample 3") as caught:
        dpdemo.simulate(**config, shuffle=True, trace_sample=3)
    assert "dpdemo run" in caught.value.hint


def test_the_way_of_a_sample_is_drawn():
    assert "batch 1 row 7 on cuda:1, row 17 of the output on cuda:0" in drawn(
        simulated(gpus=3, trace_sample=17), width=100
    )
    assert "batch 1 row 2 on cuda:0 (replica 1), row 17" in drawn(
        observed(simulated(gpus=(0, 0), trace_sample=17)), width=100
    )
    ddp = simulated(strategy="ddp", nodes=2, gpus=2, trace_sample=7)
    assert "batch 1 row 1, in and out, on rank 3 (node 1, local rank 1, cuda:1)" in drawn(ddp, width=100)


def test_json_holds_the_way_of_a_sample():
    import json

    assert json.loads(drawn(simulated(gpus=3, trace_sample=17), "json"))["trace"] == {
        "sample": 17,
        "stops": [
            {
                "batch": 1, "replica": 1, "device": "cuda:1", "row": 7, "output_row": 17,
                "output_device": "cuda:0",
            }
        ],
    }  # fmt: skip
