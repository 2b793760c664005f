"""The table for people: golden pictures, read back, and what must hold for every report and width."""

import dataclasses
import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from samples import called, drawn, interrupted, observed, reports, returning_a_dict, simulated, write

from dpdemo.results.table import Canvas, lay_out, plain, styled

GOLDEN = Path(__file__).parent / "golden"

PICTURES = {
    "cpu-80": (simulated(), 80),
    "linear-3-80": (simulated(gpus=3), 80),
    "linear-8-80": (simulated(gpus=8), 80),
    "linear-8-60": (simulated(gpus=8), 60),
    "linear-128-80": (simulated(gpus=128, batch_size=1000, data_size=10**9), 80),
    "partial-4-60": (simulated(gpus=4, model="partial"), 60),
    "lone-sample-80": (simulated(gpus=3, batch_size=7, data_size=28), 80),
    "shared-80": (observed(simulated(gpus=(0, 0, 1))), 80),
    "virtual-60": (observed(simulated(gpus=2), virtual=True), 60),
    "interrupted-60": (interrupted(), 60),
    "structure-80": (returning_a_dict(), 80),
    "own-model-60": (called("a.b:[bold]Net"), 60),
}


@pytest.mark.parametrize("name", PICTURES)
def test_table_looks_like_the_golden_picture(name, golden):
    report, width = PICTURES[name]

    golden(f"table-{name}.txt", drawn(report, width=width))


def test_ascii_table_looks_like_the_golden_picture(golden):
    golden("table-ascii-60.txt", drawn(simulated(gpus=8), width=60, encoding="ascii"))


def test_columns_behind_an_escaped_name_stay_in_line():
    report = simulated(gpus=2, batch_size=4, data_size=4)
    (group,) = report.batches
    names = "größe", "size"
    replicas = tuple(
        dataclasses.replace(each, input=((name, (2, 7)), ("mask", (2, 7))))
        for each, name in zip(group.in_model, names, strict=True)
    )
    group = dataclasses.replace(group, in_model=replicas)
    text = drawn(dataclasses.replace(report, batches=(group,)), encoding="ascii")
    bars = [line.index("#") for line in text.splitlines() if "#" in line]

    assert "gr\\xf6\\xdfe" in text
    assert len(bars) == 2
    assert len(set(bars)) == 1


@given(reports(), st.integers(1, 140))
def test_no_line_is_longer_than_the_width_or_ends_in_blanks(report, width):
    for line in drawn(report, width=width).splitlines():
        assert len(line) <= max(width, 60)
        assert line == line.rstrip()
        assert "\x1b" not in line


@given(reports(), st.integers(60, 140))
def test_no_number_is_cut(report, width):
    text = drawn(report, width=width)
    numbers = set(re.findall(r"\d+", text))

    wanted = {report.totals.samples, report.totals.batches, report.config.batch_size}
    wanted |= {replica.rows for group in report.batches for replica in group.in_model}
    assert set(map(str, wanted)) <= numbers
    assert "…" not in text


def test_sixteen_devices_have_a_line_each_and_seventeen_share_one():
    assert drawn(simulated(gpus=16, batch_size=16)).count("[1, 5]") > 16
    assert "cuda:0–16 × 17" in drawn(simulated(gpus=17, batch_size=17, data_size=17))


def test_many_samples_on_many_devices_take_few_lines():
    report = simulated(gpus=128, batch_size=1000, data_size=10**9)

    assert len(drawn(report).splitlines()) < 30


def test_verbose_shows_every_batch():
    text = drawn(simulated(gpus=3), verbose=True)

    assert re.findall(r"^Batch (\d)", text, re.MULTILINE) == ["1", "2", "3", "4"]


def test_verbose_table_of_an_endless_epoch_is_written_as_it_goes_and_lets_a_closed_pipe_through():
    class Closing(io.StringIO):
        def write(self, text):
            if self.tell() > 2000:
                raise BrokenPipeError
            return super().write(text)

    with pytest.raises(BrokenPipeError):
        write(simulated(gpus=3, data_size=10**9), "table", Console(file=Closing(), width=80), verbose=True)


def test_idle_devices_are_red_and_named_idle_and_short_ones_yellow():
    console = Console(file=io.StringIO(), width=60, force_terminal=True, color_system="standard", _environ={})
    write(simulated(gpus=8, batch_size=9, data_size=9), "table", console)
    lines = console.file.getvalue().splitlines()
    (idle,) = [line for line in lines if "cuda:7" in line]
    (short,) = [line for line in lines if "cuda:4" in line and "[1, 5]" in line]

    assert idle.startswith("\x1b[31mcuda:7")
    assert "idle" in idle
    assert short.startswith("\x1b[33mcuda:4")


def test_what_is_broken_stands_below_the_first_word_of_its_line():
    lines = [plain(line) for line in lay_out([styled("  give all ranks the same values")], Canvas(16))]
    assert lines == ["  give all ranks", "  the same", "  values"]
