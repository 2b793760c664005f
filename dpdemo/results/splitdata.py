"""The data of a split: what a prediction (`simulate`) and an observation (`run`) both return.

Identical batches are one `BatchGroup`, so that an epoch of any length is two or three of them.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from dpdemo.config.fields import Config
from dpdemo.results.batches import BatchGroup, Stop, Totals, Trace, crossed
from dpdemo.results.devices import Devices
from dpdemo.results.distribution import Distribution
from dpdemo.results.formats import Row, in_json
from dpdemo.results.report import TableReport

if TYPE_CHECKING:
    from dpdemo.arithmetic.sampler import Visit
    from dpdemo.results.tokens import Tokens


@dataclass(frozen=True, slots=True)
class SplitData(TableReport):
    """The split of an epoch over devices, observed or predicted.

    `wrapped` names the submodule inside DataParallel ("" when it is the whole model); `partial` says that
    the run was interrupted and only the batches done are here. `distribution` is DDP's alone: there a batch
    is what all ranks take in one step, a replica is a rank, and `outside` is what the loop on rank 0 sees.
    `trace` is there when the config asks for one sample's way. `verbose` lists every batch in all forms.
    """

    SCHEMA: ClassVar[str] = "dpdemo.report/1"
    DERIVED: ClassVar[tuple[str, ...]] = ("model", "totals")
    command: str
    config: Config
    devices: Devices
    batches: tuple[BatchGroup, ...]
    strategy: str = "dp"
    wrapped: str = ""
    virtual: bool = False
    partial: bool = False
    distribution: Distribution | None = field(default=None, metadata=in_json(null=False))
    trace: Trace | None = field(default=None, metadata=in_json(null=False))
    tokens: "Tokens | None" = field(default=None, metadata=in_json(null=False))
    verbose: bool = field(default=False, compare=False, metadata=in_json(""))

    @property
    def model(self) -> str:
        """The model's name, or the user's target, such as `model.py:Net`."""
        return self.config.model

    @property
    def totals(self) -> Totals:
        """Add up the epoch."""
        rows = sum(group.count * group.rows_computed for group in self.batches)
        capacity = sum(group.count * group.num_devices * group.largest for group in self.batches)
        return Totals(
            batches=sum(group.count for group in self.batches),
            samples=sum(group.count * group.batch_size for group in self.batches),
            utilization=rows / capacity if capacity else 1.0,
            sample_weight=max((group.sample_weight for group in self.batches), default=None),
        )

    @property
    def sample_weight(self) -> float:
        """The largest weight of a sample over all batches, NaN without one (see `BatchGroup`)."""
        weight = self.totals.sample_weight
        return math.nan if weight is None else weight

    def listed(self) -> Iterator[BatchGroup]:
        """Yield the groups of batches, or with `verbose` every batch."""
        return self.each_batch() if self.verbose else iter(self.batches)

    def data(self) -> dict[str, Any]:
        """Return the JSON form; the batches are an iterator."""
        found = {**TableReport.data(self), "batches": (group.to_dict() for group in self.listed())}
        if self.tokens is not None:
            found["tokens"] = self.tokens.to_dict(verbose=self.verbose)
        return found

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]  # DDP has two more
        """The names of each row's values: `view` is in_model, idle or outside.

        `device` holds the output, `input_device` the input; under DDP a replica is a rank.
        """
        place = () if self.distribution is None else ("node", "local_rank")
        return _COLUMNS + place + (() if self.tokens is None else ("tokens", "padded_tokens", "share"))

    def each_row(self) -> Iterator[Row]:
        """Yield the row of each replica and idle device of each group of batches, and that of Outside.

        With tokens every batch is listed by itself, since no two are alike.
        """
        if self.tokens is None:
            for group in self.listed():
                yield from self._rows_of(group)
            return
        for group, batch in zip(self.each_batch(), self.tokens.each_batch(), strict=True):
            cells = self.tokens.cells(batch, len(group.idle))
            yield from (row + cell for row, cell in zip(self._rows_of(group), cells, strict=True))

    def _rows_of(self, group: BatchGroup) -> Iterator[Row]:
        no_place = () if self.distribution is None else (None, None)
        batch = (group.first, group.count, group.batch_size)
        for replica in group.in_model:
            place = () if self.distribution is None else (replica.node, replica.local_rank)
            shapes = (crossed(replica.input), crossed(replica.output))
            held = (replica.replica, replica.device, replica.rows, replica.device)
            yield *batch, "in_model", *held, *shapes, *place
        for device in group.idle:
            yield *batch, "idle", None, device, 0, None, None, None, *no_place
        out = group.outside
        shapes = (crossed(out.input), crossed(out.output))
        whole = (None, out.device, group.batch_size, out.input_device)
        yield *batch, "outside", *whole, *shapes, *no_place

    def each_batch(self) -> Iterator[BatchGroup]:
        """Yield every batch as a group of its own."""
        for group in self.batches:
            for number in range(group.first, group.first + group.count):
                yield BatchGroup(number, 1, group.batch_size, group.in_model, group.idle, group.outside)


_COLUMNS = (
    "first", "count", "batch_size", "view", "replica", "device", "rows", "input_device", "input", "output",
)  # fmt: skip


def trace_batches(report: SplitData, sample: int, position: int) -> Trace:
    """Trace a sample of DataParallel at `position` of the epoch's order.

    DataParallel chunks a batch in order and gathers in order (`torch/nn/parallel/scatter_gather.py`), so a
    sample's row of the output is its row of the batch.
    """
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
    """Trace a sample of DDP by the times that ranks draw it: each rank keeps its own outputs."""
    stops = []
    for visit in sorted(visits, key=lambda visit: (visit.batch, visit.rank, visit.row)):
        device = report.devices[visit.rank]
        stops.append(Stop(visit.batch, visit.rank, device, visit.row, visit.row, device))
    return Trace(sample, tuple(stops))
