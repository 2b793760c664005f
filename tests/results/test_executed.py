"""The picture and the JSON of what a program did on virtual GPUs."""

import pytest
from jsonforms import read_json
from samples import drawn

from dpdemo.results.devices import Devices
from dpdemo.results.execution import ExecReport, Traffic, Use, heading
from dpdemo.splitting.predict import simulate

GPUS = Devices.of("cuda", range(3))
SPLITS = simulate(gpus=3).batches  # 30 rows three times, then 10


def use(number=1, splits=SPLITS, num_calls=4, **others):
    return Use(number, "DataParallel", "Model", GPUS, splits, num_calls, **others)


def report(*uses, peak_bytes=(4608, 2048, 2048), **others):
    moved = Traffic(2048, 0, 5 * 2**30, 6, 0, 1)
    return ExecReport("train.py", ("--lr", "1"), GPUS, uses, moved, peak_bytes, **others)


def test_the_picture_names_object_calls_splits_bytes_and_peaks():
    lines = drawn(report(use())).splitlines()
    assert lines[0] == "Ran on 3 virtual GPUs: train.py"
    assert lines[2:4] == [
        "DataParallel(Model) #1 on cuda:0–2: 4 calls",
        "3 calls, from call 1 on: 30 rows each",
    ]
    assert lines[6].startswith("cuda:0–2 × 3    10  [10, 5] → [10, 2]")
    assert "Call 4: 10 rows" in lines
    assert lines[-4:] == [
        "Moved  host → device    2 KiB  in 6 copies",
        "       device → host    5 GiB  in 1 copy",
        "Peak   cuda:0         4.5 KiB",
        "       cuda:1–2         2 KiB  each",
    ]


def test_a_module_wrapped_again_is_named_once():
    assert "DataParallel(Model) #1 on cuda:0–2, wrapped 6 times: 4 calls" in drawn(report(use(num_objects=6)))


def test_many_objects_and_many_splits_are_cut_short_and_counted():
    many = report(use(splits=SPLITS * 600, num_unlisted=3), *(use(n) for n in range(2, 10_001)))
    text = many.text("table")
    assert len(text.splitlines()) < 300
    assert "... and 2387 calls split in other ways" in " ".join(text.split())
    assert "DataParallel(Model) #12" in text
    assert "DataParallel(Model) #13" not in text
    assert "... and 9988 more; --save FILE.json lists them all" in text


@pytest.mark.parametrize(
    ("which", "num_calls", "said"),
    [
        (0, 3, "Every call: 30 rows"),
        (1, 1, "The one call: 10 rows"),
        (1, 4, "Call 4: 10 rows"),
        (0, 4, "3 calls, from call 1 on: 30 rows each"),
    ],
)
def test_the_heading_counts_the_calls(which, num_calls, said):
    assert heading(use(num_calls=num_calls), SPLITS[which]) == said


def test_a_peak_names_the_capacity():
    lines = drawn(report(peak_bytes=(512, 512, 512), capacity_bytes=(1024, 1024, 2048))).splitlines()
    assert lines[-2:] == [
        "Peak   cuda:0–1       512 B  each, of 1 KiB",
        "       cuda:2         512 B  of 2 KiB",
    ]


def test_json_is_exact():
    found = read_json("exec", report(use(in_replica=True), set_visible="1").text("json"))
    assert found["moved"]["device_to_host_bytes"] == 5 * 2**30
    assert found["memory"][0] == {"device": "cuda:0", "peak_bytes": 4608, "capacity_bytes": None}
    limited = read_json("exec", report(capacity_bytes=(2**30,) * 3).text("json"))
    assert [gpu["capacity_bytes"] for gpu in limited["memory"]] == [2**30] * 3
    assert found["data_parallel"][0]["splits"][1]["in_model"][2]["rows"] == 2
    assert (found["cuda_visible_devices"], found["arguments"]) == ("1", ["--lr", "1"])
