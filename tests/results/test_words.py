"""The sentences around the table."""

import dataclasses

import pytest
from samples import observed, simulated

from dpdemo.results import split as words


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, "batch size 30, data size 100"),
        ({"gpus": 8}, "DataParallel on cuda:0–7, batch size 30, data size 100"),
        (
            {"gpus": (2, 0), "dim": 1, "model": "partial"},
            "block2 in DataParallel on cuda:2, cuda:0, batch size 30, data size 100, split along dimension 1",
        ),
        (
            {"gpus": (5, *range(20)), "drop_last": True},
            "DataParallel, batch size 30, data size 100, short last batch left out",
        ),
    ],
)
def test_the_setting_lists_the_config(config, expected):
    assert words.setting(simulated(**config)) == expected


def found(**config):
    return {name: (number, meaning) for name, number, meaning in words.facts(simulated(**config))}


def test_a_short_replica_on_a_shared_device_has_its_number():
    meaning = found(gpus=(0, 0, 0), data_size=10)["Sample weight"][1]

    assert meaning.startswith("a sample on cuda:0 (replica 2) in batch 1 counts 1.67 times")


def test_almost_full_is_not_called_full():
    facts = found(gpus=2, batch_size=10**9 + 1, data_size=10**9 + 1)

    assert facts["Balance"][0] == "99.9 %"
    assert facts["Sample weight"] == ("", "every sample counts the same, or hardly more")


def test_a_run_stopped_before_its_first_batch_still_has_its_sums():
    report = observed(dataclasses.replace(simulated(gpus=2), batches=()), partial=True)

    assert words.facts(report) == [("Batches", "0", ""), ("Samples", "0", "")]
    assert words.interruption(report) == "Interrupted: only the first 0 of 4 batches"


def test_only_a_prediction_warns_and_advises():
    report = simulated(gpus=3, batch_size=7, data_size=28)

    rule, warning, tip = words.remarks(report)
    lone = "batches 1–4: a chunk holds a lone sample; BatchNorm in training can fail there"
    assert warning == ("Warning", lone)
    text = "torch.chunk gives ceil(7 / 3) = 3 rows each; the last chunk has the 1 left over"
    assert rule == ("Rule", text)
    assert tip[0] == "Tip"
    assert tip[1].startswith("--batch-size 9 --drop-last fills all 3 devices equally")
    assert words.remarks(observed(report)) == []


def test_an_unknown_output_has_a_note_with_the_command():
    ((kind, note),) = words.remarks(simulated(gpus=2, model="a.b:Net", data_size=60))

    assert kind == "Note"
    assert note.endswith("dpdemo run --virtual --gpus 2 --model a.b:Net")
    assert words.remarks(simulated(gpus=2)) == []
    assert words.remarks(observed(simulated(gpus=2, model="a.b:Net"))) == []
