"""The heat map of a sweep: legible without colour, the same counts in every form."""

import re

import pytest
from rich.console import Console

from dpdemo import sweep
from dpdemo.results.console import as_rich
from dpdemo.results.sweep import _Square, cut
from dpdemo.results.table import Canvas


def drawn(report, width, *, colours=None):
    console = Console(width=width, force_terminal=colours is not None, color_system=colours)
    with console.capture() as capture:
        for line in report.picture(Canvas(width)):
            console.print(as_rich(line), soft_wrap=True)
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


@pytest.mark.parametrize("width", [30, 40, 50])
def test_the_map_fits_a_narrow_terminal(width):
    text = drawn(sweep("1-8", "1-64"), width)
    heading = next(line for line in text.splitlines() if line.startswith("GPUs "))
    assert max(map(len, text.splitlines())) <= width
    assert re.fullmatch(r"GPUs (a sign is the )?mean of \d (batch )?sizes +even", heading)


def test_signs_and_even_sizes_of_a_small_map_can_be_read_back():
    report = sweep("1-8", "1-64")
    rows = re.findall(r"^ +(\d+) ([#xo0-9]+) +(\d+)$", drawn(report, 80), re.MULTILINE)
    assert [(int(gpus), int(even)) for gpus, _, even in rows] == [
        (line.gpus, line.nearest_even) for line in report.lines
    ]
    signs = "".join(line for _, line, _ in rows)
    assert signs.count("x") == report.totals.idle
    both = sum(a and b for line in report.lines for a, b in zip(line.has_idle, line.has_lone, strict=True))
    assert signs.count("o") == report.totals.lone - both


def test_a_coloured_map_has_the_same_signs():
    report = sweep("1-8", "1-64")
    text = drawn(report, 80, colours="truecolor")
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert bare != text
    assert bare == drawn(report, 80)


def test_a_block_is_the_mean_of_its_cells_and_has_the_marks_of_half_of_them():
    assert cut(10, 4) == [slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 10)]
    assert _Square(0.79, 4, is_idle=False, is_lone=False).sign("balance") == "7"
    assert _Square(1.0, 4, is_idle=False, is_lone=False).sign("balance") == "#"
    assert _Square(1.0, 4, is_idle=True, is_lone=True).sign("balance") == "x"
    assert _Square(12.0, 16, is_idle=True, is_lone=False).sign("idle") == "+"


def luminance(shade):
    parts = [int(shade[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_sign_can_be_read_on_its_colour():
    """The contrast that WCAG asks of large text, 3 to 1, and more."""
    from dpdemo.results.sweep import _style

    for idle in (False, True):
        for lone in (False, True):
            for step in range(1, 21):
                ink, _, behind = _style(_Square(0.05 * step, 8, idle, lone).colour("balance")).split()
                light, dark = sorted((luminance(behind), luminance(ink)), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 3.5


def test_every_cell_has_a_row(golden):
    report = sweep("1-3,7", "3-4")
    golden("swept-4x2.csv", report.text("csv"))
    golden("swept-4x2.json", report.to_json())
    golden("swept-4x2.markdown", report.to_markdown())
    assert len(report.rows()) == 8
