"""A report as CSV: a line for each replica and idle device of each group of batches, and one for Outside."""

import csv
from collections.abc import Iterator
from typing import Any

from dpdemo.render.plain import listed
from dpdemo.render.shapes import crossed
from dpdemo.report import BatchGroup, SplitReport

COLUMNS = (
    "first", "count", "batch_size", "view", "replica", "device", "rows", "input_device", "input", "output",
)  # fmt: skip
"""`view` is in_model, idle or outside; `device` holds the output, `input_device` the input."""
OF_RANKS = ("node", "local_rank")
"""Two more columns under DDP, where a replica is a rank."""


class _Echo:
    """A file for csv.writer whose `write` hands the line back, so that lines can be yielded."""

    def write(self, line: str) -> str:
        return line


def pieces(report: SplitReport, *, verbose: bool) -> Iterator[str]:
    """Yield the header, then the lines in the order of the epoch."""
    writer: Any = csv.writer(_Echo(), lineterminator="\n")
    yield writer.writerow(COLUMNS + (() if report.distribution is None else OF_RANKS))
    for group in listed(report, verbose=verbose):
        batch = (group.first, group.count, group.batch_size)
        for line in _lines(group):
            yield writer.writerow((*batch, *line, *_place(report, line)))


def _place(report: SplitReport, line: tuple[object, ...]) -> tuple[object, ...]:
    if report.distribution is None:
        return ()
    rank = line[1]
    if not isinstance(rank, int):
        return ("", "")
    place = report.distribution.place(rank)
    return (place.node, place.local_rank)


def _lines(group: BatchGroup) -> Iterator[tuple[object, ...]]:
    for run in group.in_model:
        input_shapes, output_shapes = crossed(run.input), crossed(run.output)
        for replica, device in enumerate(run.devices, run.first):
            yield "in_model", replica, device, run.rows, device, input_shapes, output_shapes
    for device in group.idle:
        yield "idle", "", device, 0, "", "", ""
    out = group.outside
    yield (
        "outside",
        "",
        out.device,
        group.batch_size,
        out.input_device,
        crossed(out.input),
        crossed(out.output),
    )
