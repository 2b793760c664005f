"""The way of one sample: its batch, its device, its row there, and its row of the output.

DataParallel chunks a batch in order and gathers in order (`torch/nn/parallel/scatter_gather.py`), so a
sample's row of the output is its row of the batch. Under DDP each rank keeps its own outputs.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dpdemo.results.batches import BatchGroup, Stop, Trace
from dpdemo.results.splitdata import SplitData

if TYPE_CHECKING:
    from dpdemo.arithmetic.sampler import Visit


def trace_batches(report: SplitData, sample: int, position: int) -> Trace:
    """Trace a sample of DataParallel at `position` of the epoch's order."""
    start = 0
    for group in report.batches:
        stop = start + group.count * group.batch_size
        if position < stop:
            number, row = divmod(position - start, group.batch_size)
            return Trace(sample, (_stop_in(group, group.first + number, row),))
        start = stop
    return Trace(sample, ())


def _stop_in(group: BatchGroup, number: int, row: int) -> Stop:
    rest = row
    for replica in group.in_model:
        if rest < replica.rows:
            return Stop(number, replica.replica, replica.device, rest, row, group.outside.device)
        rest -= replica.rows
    raise AssertionError(f"row {row} is in no chunk of {group}")


def trace_visits(report: SplitData, sample: int, visits: Iterable["Visit"]) -> Trace:
    """Trace a sample of DDP by the times that ranks draw it, in the order of batches and ranks."""
    stops = []
    for visit in sorted(visits, key=lambda visit: (visit.batch, visit.rank, visit.row)):
        device = report.devices[visit.rank]
        stops.append(Stop(visit.batch, visit.rank, device, visit.row, visit.row, device))
    return Trace(sample, tuple(stops))
