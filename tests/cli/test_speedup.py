"""`dpdemo speedup`: what it is asked, what it says, and what it does without torch."""

from jsonforms import read_json

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


def test_units_of_1024_have_an_i(dpdemo):
    report = told(dpdemo, *SIZED, "--outputs", "98MiB", "--inputs", "1.5kB", "--gpus", "2")
    assert (report["workload"]["output_bytes"], report["workload"]["input_bytes"]) == (98 * 2**20, 1500)


def test_the_batch_and_the_rows_of_the_step_are_those_of_one_gpu(dpdemo):
    report = told(dpdemo, *LINK, "transformer", "--batch-size", "8", "--one-gpu-step", "4ms@4", "--gpus", "2")
    assert report["workload"]["rows"] == 8
    assert report["ways"][0]["weak"]["one_gpu_ms"]["point"] == 16  # two batches of 8 rows
