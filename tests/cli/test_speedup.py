"""`dpdemo speedup`: what it is asked, what it says, and what it does without torch."""

import sys

import pytest
from jsonforms import read_json
from processes import needs_no_gpu, run

LINK = ["--link", "pcie4"]
SIZED = [*LINK, "--parameters", "124M"]


def told(dpdemo, *options):
    done = dpdemo("speedup", *options, "--format", "json")
    assert (done.code, done.err) == (0, "")
    return read_json("speedup", done.out)


def test_given_sizes_need_no_model(dpdemo):
    report = told(dpdemo, *SIZED, "--outputs", "98MB", "--one-gpu-step", "49ms", "--gpus", "2,4")
    assert report["workload"]["parameter_bytes"] == 496_000_000
    assert report["workload"]["output_bytes"] == 98_000_000
    assert [(way["num_gpus"], way["strategy"]) for way in report["ways"]] == [
        *((2, "DataParallel"), (2, "DDP"), (4, "DataParallel"), (4, "DDP")),
    ]
    assert report["ways"][0]["weak"]["verdict"] in {"pays", "does not pay", "cannot tell"}


def test_without_a_measured_step_there_is_a_break_even_and_no_time_of_computation(dpdemo):
    report = told(dpdemo, *SIZED, "--gpus", "2")
    for way in report["ways"]:
        assert way["weak"]["break_even_ms"]["low"] > 0
        assert (way["weak"]["step_ms"], way["weak"]["verdict"]) == (None, None)


def test_a_bandwidth_stands_for_a_link(dpdemo):
    report = told(dpdemo, "--bandwidth", "20GB/s", "--gpus", "2")
    assert report["link"]["copy_rate"] == {"low": 20, "high": 20}


def test_units_of_1024_have_an_i(dpdemo):
    report = told(dpdemo, *SIZED, "--outputs", "98MiB", "--inputs", "1.5kB", "--gpus", "2")
    assert (report["workload"]["output_bytes"], report["workload"]["input_bytes"]) == (98 * 2**20, 1500)


def test_the_batch_and_the_rows_of_the_step_are_those_of_one_gpu(dpdemo):
    report = told(dpdemo, *LINK, "transformer", "--batch-size", "8", "--one-gpu-step", "4ms@4", "--gpus", "2")
    assert report["workload"]["rows"] == 8
    assert report["ways"][0]["weak"]["one_gpu_ms"]["point"] == 16  # two batches of 8 rows


def test_two_measured_steps_give_a_line(dpdemo):
    steps = ["--one-gpu-step", "30ms@4", "--one-gpu-step", "50ms@8"]
    report = told(dpdemo, *LINK, "--batch-size", "8", *steps, "--gpus", "2")
    assert report["ways"][1]["strong"]["step_ms"]["point"] == pytest.approx(30 * 1.0345, rel=0.01)


@needs_no_gpu
def test_a_model_of_ones_own_is_weighed_on_virtual_gpus(dpdemo, monkeypatch, tmp_path):
    source = (
        "from torch import nn\n"
        "def make():\n"
        "    print('made')\n"
        "    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 4))\n"
    )
    (tmp_path / "speedup_net.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    report = told(dpdemo, "speedup_net:make", "--input", "24x16", *LINK, "--gpus", "2")
    numbers = 16 * 32 + 32 + 2 * 32 + 32 * 4 + 4
    assert report["workload"]["rows"] == 24
    assert report["workload"]["parameter_bytes"] == 4 * numbers
    assert report["workload"]["buffer_bytes"] == 2 * 4 * 32 + 8
    assert report["workload"]["launches"]["modules"] == 4


@needs_no_gpu
def test_sizes_import_no_torch():
    code = (
        "import sys\n"
        f"sys.argv = ['dpdemo', 'speedup', *{SIZED!r}, '--one-gpu-step', '49ms']\n"
        "from dpdemo.cli import main\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules\n"
    )
    done = run([sys.executable, "-c", code])
    assert (done.returncode, done.stderr) == (0, "")
