"""The heat map of a sweep: legible without colour, the same counts in every form."""

import re

import pytest
from rich.console import Console

from dpdemo import sweep
from dpdemo.render import drawing_of
from dpdemo.render.sweep.blocks import Block, cut
from dpdemo.render.sweep.signs import Colour, colour, sign


def drawn(report, width, *, colours=None, encoding="utf-8"):
    console = Console(width=width, force_terminal=colours is not None, color_system=colours)
    with console.capture() as capture:
        for part in drawing_of(report).parts(width, encoding):
            console.print(part, crop=False)
    return capture.get()


@pytest.mark.parametrize(
    ("name", "report"),
    [
        ("swept-balance", lambda: sweep("1-8", "1-64")),
        ("swept-weight", lambda: sweep("1-16", "16-512", of="weight")),
        ("swept-idle", lambda: sweep("1-40", "1-200:3", of="idle")),
    ],
)
@pytest.mark.parametrize("width", [60, 80])
def test_the_map_looks_like_this(golden, name, report, width):
    text = drawn(report(), width)
    assert max(map(len, text.splitlines())) <= width
    golden(f"{name}-{width}.txt", text)


def test_the_signs_of_a_small_map_can_be_read_back():
    report = sweep("1-8", "1-64")
    rows = re.findall(r"^ +(\d+) ([#xo0-9]+)$", drawn(report, 80), re.MULTILINE)
    assert [int(gpus) for gpus, _ in rows] == [line.gpus for line in report.lines]
    signs = "".join(line for _, line in rows)
    assert signs.count("x") == report.totals.idle
    both = sum(a & b for line in report.lines for a, b in zip(line.has_idle, line.has_lone, strict=True))
    assert signs.count("o") == report.totals.lone - both


def test_many_numbers_of_gpus_are_half_blocks_where_there_is_colour():
    report = sweep("1-48", "1-48")
    text = drawn(report, 80, colours="truecolor")
    assert text.count("▀") == 24 * 48
    assert "orange a GPU idle" in text
    assert "▀" not in drawn(report, 80)
    assert "▀" not in drawn(report, 80, colours="truecolor", encoding="ascii")


def test_few_numbers_of_gpus_keep_their_signs_in_colour():
    report = sweep("1-8", "1-64")
    bare = re.sub(r"\x1b\[[0-9;]*m", "", drawn(report, 80, colours="truecolor"))
    assert bare == drawn(report, 80)


def test_a_block_is_the_mean_of_its_cells_and_has_the_mark_of_half_of_them():
    assert cut(10, 4) == [slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 10)]
    assert sign(Block(0.79, 4, is_idle=False, is_lone=False), "balance") == "7"
    assert sign(Block(1.0, 4, is_idle=False, is_lone=False), "balance") == "#"
    assert sign(Block(1.0, 4, is_idle=True, is_lone=True), "balance") == "x"
    assert sign(Block(12.0, 16, is_idle=True, is_lone=False), "idle") == "+"


def luminance(shade):
    parts = [part / 255 for part in shade]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("lone", [False, True])
@pytest.mark.parametrize("mean", [0.05 * step for step in range(1, 21)])
def test_a_sign_can_be_read_on_its_colour(mean, idle, lone):
    """The contrast that WCAG asks of large text, 3 to 1, and more."""
    behind = colour(Block(mean, 8, idle, lone), "balance")
    ink = Colour(0, 0, 0) if behind.ink == "#000000" else Colour(255, 255, 255)
    light, dark = sorted((luminance(behind), luminance(ink)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3.5


def test_every_cell_has_a_row(golden):
    report = sweep("1-3,7", "3-4")
    golden("swept-4x2.csv", drawing_of(report).text("csv"))
    golden("swept-4x2.json", report.to_json())
    golden("swept-4x2.markdown", report.to_markdown())
    assert len(report.rows()) == 8
