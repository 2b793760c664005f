"""`dpdemo speedup`: the batch, the GPUs and the link that it answers for."""

import pytest
from jsonforms import read_json


def reported(dpdemo, *options):
    done = dpdemo("speedup", *options, "--format", "json")
    assert (done.code, done.err) == (0, "")
    return read_json("speedup", done.out)


def test_the_gpus_share_the_batch(dpdemo):
    report = reported(dpdemo, "transformer", "--batch-size", "8", "--gpus", "3")
    assert report["workload"]["rows"] == 8
    assert [(way["strategy"], way["rows"]) for way in report["ways"]] == [
        ("DataParallel", [3, 3, 2]),
        ("DDP", [3, 3, 3]),
    ]


def test_the_rows_of_an_input_are_the_batch(dpdemo):
    report = reported(dpdemo, "linear", "--input", "12x5", "--gpus", "0,1")
    assert (report["num_gpus"], report["ways"][0]["rows"]) == (2, [6, 6])


@pytest.mark.parametrize("command", ["speedup", "doctor"])
def test_the_default_link_is_the_same_everywhere(dpdemo, command):
    assert "2 GPUs over pcie4 pay" in " ".join(dpdemo(command, "linear", "--gpus", "2").out.split())


def test_a_bandwidth_replaces_the_link(dpdemo):
    report = reported(dpdemo, "linear", "--gpus", "2", "--bandwidth", "20GB/s")
    assert report["link"]["copy_rate"] == report["link"]["ring_rate"] == {"low": 20, "high": 20}
    assert report["summary"].startswith("2 GPUs over 20 GB/s pay")
