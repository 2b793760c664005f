"""The map of what is predicted: figures where there is room, signs where there is none, and words."""

import pytest
from rich.console import Console

from dpdemo.render import drawing_of
from dpdemo.reports.sweep import Basis, Line, SweepReport

NONE = bytes(4)
BASIS = Basis(
    model="model.py:Net",
    num_predicted=9,
    num_kept=4,
    num_between=1,
    failure="expected the model to take a batch of 1, got ValueError: too few",
    assumed={"optimizer": "adamw", "each GPU holds": "24 GiB"},
)
GIB = 2.0**30
REPORTS = {
    "memory": (
        (None, 2 * GIB, 5 * GIB, 30 * GIB),
        ("fails", "", "", ""),
        (None, 2 * GIB, 3 * GIB, 16 * GIB),
        ("fails", "", "", ""),
    ),
    "fits": (
        (None, 2 * GIB, 5 * GIB, 30 * GIB),
        ("fails", "fits", "fits", "does not fit"),
        (None, 2 * GIB, None, 25 * GIB),
        ("fails", "fits", "fits", "tight"),
    ),
    "speedup": (
        (None, 1.0, 1.0, 1.0),
        ("fails", *["does not pay"] * 3),
        (None, 0.4, 0.98, 1.75),
        ("fails", "does not pay", "cannot tell", "pays"),
    ),
    "break-even": (
        (None, None, None, None),
        ("fails", *["never pays"] * 3),
        (None, 130.0, 12.5, 9.25),
        ("fails", *["pays if longer"] * 3),
    ),
}


def report(measure, sizes=(1, 32, 512, 8192)):
    one, said_of_one, two, said_of_two = REPORTS[measure]
    lines = (Line(1, one, NONE, NONE, said_of_one), Line(2, two, NONE, NONE, said_of_two))
    return SweepReport(measure, 30, sizes, lines, BASIS)


def drawn(found, width):
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        for part in drawing_of(found).parts(width, "utf-8"):
            console.print(part, crop=False)
    return capture.get()


@pytest.mark.parametrize("measure", REPORTS)
@pytest.mark.parametrize("width", [20, 60])
def test_a_predicted_map_looks_like_this(golden, measure, width):
    text = drawn(report(measure), width)
    golden(f"swept-{measure}-{width}.txt", text)
    if width == 60:
        assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("form", ["csv", "markdown", "json"])
def test_what_fits_in_every_other_form(golden, form):
    golden(f"swept-fits.{form}", drawing_of(report("fits")).text(form))


def test_the_best_cells_are_named():
    said = {measure: str(report(measure)) for measure in REPORTS}
    assert "Least near a batch of 30: 32 on 1 GPU, 2 GiB" in said["memory"]
    assert "Fits near a batch of 30: 32 on 1 GPU" in said["fits"]
    assert "Best near a batch of 30: 32 on 1 GPU, more do not pay" in said["speedup"]
    assert "Best near a batch of 30: 32 on 2 GPUs, 130 ms, pays if longer" in said["break-even"]


def test_the_frontier_is_the_largest_batch_of_each_line_that_fits():
    found = report("fits")
    assert [found.largest(line) for line in found.lines] == [512, 8192]
    assert found.totals.ideal == 4


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (("fails", "tight", "does not fit"), "Fits near a batch of 30: 32 on 4 GPUs, tightly"),
        (("fails", "does not fit", "does not fit"), "No batch fits"),
        (("fails", "fails", "does not fit"), "No batch fits"),
    ],
)
def test_what_fits_near_the_batch_is_said_even_where_nothing_does(answers, said):
    line = Line(4, (None, None, None), bytes(3), bytes(3), answers)
    assert said in str(SweepReport("fits", 30, (1, 32, 64), (line,), BASIS))
