"""A sweep's figures are those that `simulate` gives for each cell by itself."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpdemo import UsageError, simulate, sweep

MEASURES = ("balance", "weight", "idle")


def expected(batch_size, gpus, measure):
    """The figure and the two marks of a full batch in `simulate`."""
    (group,) = simulate(batch_size=batch_size, data_size=batch_size, gpus=gpus).batches
    figures = {"balance": group.utilization, "weight": group.sample_weight, "idle": len(group.idle)}
    return figures[measure], len(group.idle) > 0, group.smallest == 1


def cells(report):
    for line in report.lines:
        for place, size in enumerate(report.batch_sizes):
            yield size, line.gpus, (line.values[place], line.has_idle[place], line.has_lone[place])


@given(
    gpus=st.lists(st.integers(1, 128), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 2**63 - 1) | st.integers(1, 5000), min_size=1, max_size=8),
    measure=st.sampled_from(MEASURES),
)
def test_each_cell_equals_simulate(gpus, sizes, measure):
    for size, number, found in cells(sweep(gpus, sizes, of=measure)):
        assert found == expected(size, number, measure)


@pytest.mark.parametrize("near", [1, 23, 30, 31, 1000])
def test_the_even_batch_size_is_the_nearest_of_each_number_of_gpus(near):
    """A brute-force search with torch.chunk; of two sizes equally near it is the larger."""
    report = sweep("1-40", "5-64", near=near)
    for line in report.lines:
        even = [size for size in report.batch_sizes if _is_even(size, line.gpus)]
        even.sort(key=lambda size: (abs(size - near), -size))
        assert line.nearest_even == (even[0] if even else None)


def _is_even(size, gpus):
    chunks = torch.arange(size).chunk(gpus)
    return len(chunks) == gpus and len({len(chunk) for chunk in chunks}) == 1 and len(chunks[0]) > 1


def test_a_sweep_does_not_recommend_more_gpus_for_the_same_batch():
    assert {line.gpus: line.nearest_even for line in sweep("2,3,4,15").lines} == {2: 30, 3: 30, 4: 32, 15: 30}
    assert "Best" not in str(sweep())
    assert "best" not in sweep().to_dict()


def test_the_totals_count_the_cells():
    report = sweep("1-16", "1-64")
    counted = [found for *_, found in cells(report)]
    assert report.totals.cells == len(counted) == 1024
    assert report.totals.ideal == sum(value == 1.0 for value, _, _ in counted)
    assert report.totals.idle == sum(idle for _, idle, _ in counted)
    assert report.totals.lone == sum(lone for _, _, lone in counted)


def test_invalid_grids_are_refused():
    with pytest.raises(UsageError, match="at most 100000 cells, got 2000 batch sizes over 128"):
        sweep("1-128", "1-2000")
    with pytest.raises(UsageError, match="expected balance, weight, idle, got 'speed'"):
        sweep(of="speed")
    with pytest.raises(UsageError, match="from 1 to 128, got '129'"):
        sweep(129)


def test_a_sweep_imports_no_torch():
    code = "import sys, dpdemo; dpdemo.sweep().to_json(); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
