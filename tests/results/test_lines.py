"""Lines: a device each, or a run of equal devices."""

from dataclasses import replace

import pytest
from hypothesis import given
from samples import drawn, few_gpus, few_sizes, reports, simulated


def labels(**config):
    report = simulated(**config)
    return [line.label for line in report.groups.lines(report.batches[0])]


def test_few_devices_have_a_line_each():
    assert labels(gpus=3) == ["cuda:0", "cuda:1", "cuda:2"]


def test_a_device_with_several_replicas_names_them():
    assert labels(gpus=(0, 0, 1)) == ["cuda:0 (replica 0)", "cuda:0 (replica 1)", "cuda:1 (replica 2)"]


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (40, ["cuda:0–39 × 40"]),
        (tuple(range(39, -1, -1)), ["cuda:39–0 × 40"]),
        ((0,) * 20, ["cuda:0 (replicas 0–19) × 20"]),
        ((*range(10), *range(20, 30)), ["cuda:0–9 × 10", "cuda:20–29 × 10"]),
        ((*range(10), *range(9)), ["cuda:0–9 (replicas 0–9) × 10", "cuda:0–8 (replicas 10–18) × 9"]),
        ((7, 5, *range(20, 36)), ["cuda:7", "cuda:5", "cuda:20–35 × 16"]),
    ],
)
def test_many_equal_devices_share_a_line(gpus, expected):
    num = gpus if isinstance(gpus, int) else len(gpus)

    assert labels(gpus=gpus, batch_size=2 * num, data_size=2 * num) == expected


def test_idle_devices_come_last_and_share_a_line_too():
    assert labels(gpus=100, batch_size=10, data_size=10) == ["cuda:0–9 × 10", "cuda:10–99 × 90"]


@given(reports(sizes=few_sizes, gpus=few_gpus))
def test_lines_hold_every_row_and_every_device_once(report):
    for group in report.batches:
        lines = list(report.groups.lines(group))

        assert sum(line.count * line.rows for line in lines) == group.batch_size
        assert sum(line.count for line in lines) == len(report.devices)
        assert sum(line.count for line in lines if line.is_idle) == len(group.idle)
        assert [line.is_idle for line in lines] == sorted(line.is_idle for line in lines)


def test_the_view_from_outside_is_broken_before_its_arrow():
    report = simulated(gpus=2, data_size=30)
    (group,) = report.batches
    for name in ("log\x1b[2J", "結果結果", "x::error::"):
        outside = replace(group.outside, input=((name, (30, 5)),), output=((name, (30, 2)),))
        named = replace(report, batches=(replace(group, outside=outside),))
        for width in range(50, 90):
            first, *others = (
                drawn(named, width=width).partition("Outside")[2].partition("\n\n")[0].splitlines()
            )
            assert ("→" in first) != bool(others)
            assert all(line.lstrip().startswith("→") for line in others)
