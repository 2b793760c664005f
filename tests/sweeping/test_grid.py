"""A sweep's figures are those that `simulate` gives for each cell by itself."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo import UsageError, simulate, sweep
from dpdemo.arithmetic.chunk import split_batch

MEASURES = ("balance", "weight", "idle")


def expected(batch_size, gpus, measure):
    """What `simulate` says of a full batch: the figure, and the two marks."""
    (group,) = simulate(batch_size=batch_size, data_size=batch_size, gpus=gpus).batches
    figures = {"balance": group.utilization, "weight": group.sample_weight, "idle": len(group.idle)}
    return figures[measure], len(group.idle) > 0, group.smallest == 1


def cells(report):
    for line in report.lines:
        for place, size in enumerate(report.batch_sizes):
            marks = (line.has_idle[place] == 1, line.has_lone[place] == 1)
            yield size, line.gpus, (line.values[place], *marks)


@pytest.mark.parametrize("measure", MEASURES)
def test_every_cell_of_a_small_grid_is_what_simulate_says(measure):
    for size, gpus, found in cells(sweep("1-17", "1-300", of=measure)):
        assert found == expected(size, gpus, measure), (size, gpus)


@given(
    gpus=st.lists(st.integers(1, 2000), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 2**63 - 1) | st.integers(1, 5000), min_size=1, max_size=8),
    measure=st.sampled_from(MEASURES),
)
def test_every_cell_of_any_grid_is_what_simulate_says(gpus, sizes, measure):
    for size, number, found in cells(sweep(gpus, sizes, of=measure)):
        assert found == expected(size, number, measure)


@given(
    first=st.integers(1, 400), length=st.integers(1, 300), step=st.integers(1, 40), gpus=st.integers(1, 40)
)
def test_every_cell_of_a_range_with_steps_is_what_the_split_rule_says(first, length, step, gpus):
    report = sweep(gpus, f"{first}-{first + length}:{step}", of="balance")
    assert list(report.batch_sizes) == list(range(first, first + length + 1, step))
    for size, number, (value, idle, lone) in cells(report):
        split = split_batch(size, number)
        assert value == size / (number * split.largest)
        assert (idle, lone) == (split.num_idle > 0, split.smallest == 1)


@pytest.mark.parametrize(
    ("near", "best"), [(30, (30, 15)), (31, (32, 16)), (29, (30, 15)), (1, (4, 2)), (1000, (64, 16))]
)
def test_the_best_cell_is_ideal_then_near_then_of_many_gpus(near, best):
    found = sweep("1-16", "1-64", near=near).best
    assert (found.batch_size, found.gpus) == best
    assert (found.value, found.has_idle, found.has_lone) == (1.0, False, False)


def test_the_best_cell_is_a_brute_force_search_over_all():
    report = sweep("2-9", "5-60", near=23)
    fit = [
        (abs(size - 23), -gpus, size)
        for size, gpus, (value, idle, lone) in cells(report)
        if value == 1.0 and not idle and not lone
    ]
    assert (report.best.batch_size, report.best.gpus) == (min(fit)[2], -min(fit)[1])


@pytest.mark.parametrize(("measure", "best"), [("balance", (15, 4)), ("weight", (15, 4)), ("idle", (13, 4))])
def test_where_nothing_is_even_the_best_cell_has_the_best_figure(measure, best):
    found = sweep(4, "13,15", of=measure, near=13).best
    assert (found.batch_size, found.gpus) == best if measure != "idle" else found.value == 0


def test_one_gpu_is_the_best_only_where_nothing_else_was_asked_for():
    assert sweep("1-2", "31", near=31).best.gpus == 2
    assert sweep(1, "31", near=31).best.gpus == 1


def test_the_totals_count_the_cells():
    report = sweep("1-16", "1-64")
    counted = [found for *_, found in cells(report)]
    assert report.totals.cells == len(counted) == 1024
    assert report.totals.ideal == sum(value == 1.0 for value, _, _ in counted)
    assert report.totals.idle == sum(idle for _, idle, _ in counted)
    assert report.totals.lone == sum(lone for _, _, lone in counted)


def test_a_grid_that_no_one_could_read_is_refused():
    with pytest.raises(UsageError, match="at most 10000000 cells, got 10000 batch sizes over 10000"):
        sweep("1-10000", "1-10000")
    with pytest.raises(
        UsageError, match="expected balance, weight, idle, memory, fits, speedup, got 'speed'"
    ):
        sweep(of="speed")


def test_a_sweep_imports_no_torch():
    code = "import sys, dpdemo; dpdemo.sweep().to_json(); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
