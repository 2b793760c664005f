"""The verdict of a replay in words and in JSON."""

import math

import pytest
from jsonforms import keeps_to
from samples import drawn

from dpdemo.reports.devices import Devices
from dpdemo.reports.replay import Difference, Replay

SUM = Difference(2, "gradient of fc.weight", "sum", "0.5", "0.75", 0.25, 0.5, 1e-5)
TINY = Difference(1, "output", "sample[3]", "0.25", "0.25000003", 3e-8, 1.2e-7, 1.03e-5)


def replay(verdict="identical", **changes):
    values = {
        "devices": Devices.of("cuda", [0, 0, 0]), "virtual": False, "torch": "2.13.0",
        "recorded_torch": "2.11.0", "recorded_virtual": True,
        "recorded_devices": Devices.of("cuda", range(3)),
        "num_batches": 4, "num_tensors": 46, "num_inexact": 0, "largest": None, "first": None,
    }  # fmt: skip
    return Replay(verdict, **{**values, **changes})


def test_identical_is_one_line_and_both_sides():
    assert drawn(replay()) == (
        "Identical: all 46 tensors, 4 batches, forward and backward\n"
        "recorded  on virtual cuda:0–2, torch 2.11.0\n"
        "replayed  on cuda:0, cuda:0, cuda:0, torch 2.13.0\n"
    )


def test_round_off_shows_the_largest_difference():
    assert drawn(replay("equal to round-off", num_inexact=5, largest=TINY)).splitlines() == [
        "Equal to round-off: 5 of 46 tensors have other bytes",
        "recorded  on virtual cuda:0–2, torch 2.11.0",
        "replayed  on cuda:0, cuda:0, cuda:0, torch 2.13.0",
        "largest   batch 1, output",
        "expected  sample[3] 0.25",
        "got       sample[3] 0.25000003",
        "apart     3e-08, relative 1.2e-07, allowed 1.03e-05",
        "compared  46 tensors, 4 batches: sums, magnitudes and sampled values",
    ]


def test_a_difference_is_named_with_its_place_and_size():
    lines = drawn(replay("different", first=SUM, num_tensors=20, num_inexact=2)).splitlines()
    assert lines[0] == "Different: first at batch 2, gradient of fc.weight"
    assert lines[3:] == [
        "expected  sum 0.5",
        "got       sum 0.75",
        "apart     0.25, relative 0.5, allowed 1e-05",
        "compared  20 tensors up to there, 2 of them equal to round-off only",
    ]


def test_what_is_no_number_has_no_distance():
    weight = Difference(0, "parameter weight", "shape", "[2, 5]", "[2, 6]")
    text = drawn(replay("different", first=weight))
    assert text.startswith("Different: first at the start, parameter weight\n")
    assert "apart" not in text


@pytest.mark.parametrize("width", [20, 50, 80])
def test_no_line_is_wider_than_the_console(width):
    lines = drawn(replay("different", first=SUM), width=width).splitlines()
    assert max(map(len, lines)) <= width


def test_a_file_cannot_steer_the_terminal():
    evil = Difference(1, "out\x1b[2Jput", "dtype", "float32\x1b[31m", "float64")
    assert "\x1b" not in drawn(replay("different", first=evil, recorded_torch="2\x1b[0m"))


def test_the_json_is_strict_and_holds_the_difference():
    endless = Difference(1, "output", "sum", "nan", "1.0", math.inf, math.inf, 0.0)
    text = drawn(replay("different", first=endless), form="json")
    found = keeps_to("replay", text)
    assert found["first"]["absolute"] is None
    assert found["devices"] == ["cuda:0"] * 3
    assert found["recorded_devices"] == ["cuda:0", "cuda:1", "cuda:2"]
