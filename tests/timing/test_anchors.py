"""A measured step of one GPU: how it is written, and what it says of other rows."""

import pytest

from dpdemo.errors import UsageError
from dpdemo.results.speedupdata import Anchor, Launches
from dpdemo.timing.anchors import check_anchors, one_gpu_ms, read_anchor
from dpdemo.timing.steps import MIDDLE
from dpdemo.timing.workload import given_workload

WORK = given_workload(1000, rows=32)
LAUNCHED = given_workload(1000, rows=32, launches=Launches(forward=1000, backward=1000, modules=1, tensors=1))


@pytest.mark.parametrize(
    ("text", "ms", "rows"),
    [
        ("49ms", 49, None),
        ("49ms@8", 49, 8),
        ("0.05s", 50, None),
        (" 700 us @ 4 ", 0.7, 4),
        ("3µs", 0.003, None),
    ],
)
def test_a_step_is_read_with_its_unit_and_perhaps_its_rows(text, ms, rows):
    found = read_anchor(text)
    assert (found.ms, found.rows) == (pytest.approx(ms), rows)


@pytest.mark.parametrize("text", ["49", "ms", "0ms", "49ms@0", "49ms@", "-1ms", "49min", "49ms@8@9", ""])
def test_anything_else_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="expected a time such as 49ms, or 49ms@8 for 8 rows"):
        read_anchor(text)


def test_rows_are_refused_where_the_batch_is_not_known():
    with pytest.raises(UsageError, match="since the rows of one GPU's batch are not known"):
        check_anchors([Anchor(ms=1, rows=8)], given_workload(1000))


def test_two_steps_of_the_same_rows_are_refused():
    with pytest.raises(UsageError, match="expected different numbers of rows, got 32, 32"):
        check_anchors([Anchor(ms=1), Anchor(ms=2, rows=32)], WORK)


@pytest.mark.parametrize(("share", "ms"), [(1, 40), (0.5, 20), (2, 80)])
def test_one_step_is_in_proportion_to_its_rows(share, ms):
    assert one_gpu_ms([Anchor(ms=40)], WORK, share, MIDDLE) == pytest.approx(ms)


def test_a_smaller_batch_takes_no_less_than_its_launches():
    assert one_gpu_ms([Anchor(ms=40)], LAUNCHED, 0.25, MIDDLE) == pytest.approx(2000 * 0.012)
    assert one_gpu_ms([Anchor(ms=10)], LAUNCHED, 0.25, MIDDLE) == pytest.approx(10)


def test_between_two_steps_lies_a_line():
    anchors = [Anchor(ms=30, rows=16), Anchor(ms=50, rows=32)]
    assert one_gpu_ms(anchors, WORK, 0.75, MIDDLE) == pytest.approx(40)
    assert one_gpu_ms(anchors, WORK, 0.25, MIDDLE) == pytest.approx(15)
