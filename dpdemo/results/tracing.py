"""The way of one sample: its batch, its device, its row there, and its row of the output.

DataParallel chunks a batch in order and gathers in order (`torch/nn/parallel/scatter_gather.py`), so a
sample's row of the output is its row of the batch. Under DDP each rank keeps its own outputs.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dpdemo.results.batches import Stop, Trace
from dpdemo.results.splitdata import SplitData

if TYPE_CHECKING:
    from dpdemo.arithmetic.sampler import Visit


def trace_batches(report: SplitData, sample: int, position: int) -> Trace:
    """Trace a sample of DataParallel at `position` of the epoch's order."""
    number, row = divmod(position, report.config.batch_size)
    group = next((group for group in report.batches if group.first <= number + 1 <= group.last()), None)
    if group is None:
        return Trace(sample, ())
    rest = row
    for replica in group.in_model:
        if rest < replica.rows:
            out = group.outside.device
            return Trace(sample, (Stop(number + 1, replica.replica, replica.device, rest, row, out),))
        rest -= replica.rows
    raise AssertionError(f"row {row} is in no chunk of {group}")


def trace_visits(report: SplitData, sample: int, visits: Iterable["Visit"]) -> Trace:
    """Trace a sample of DDP by the times that ranks draw it, in the order of batches and ranks."""
    stops = []
    for visit in sorted(visits, key=lambda visit: (visit.batch, visit.rank, visit.row)):
        device = report.devices[visit.rank]
        stops.append(Stop(visit.batch, visit.rank, device, visit.row, visit.row, device))
    return Trace(sample, tuple(stops))
