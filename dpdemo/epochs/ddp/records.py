"""The task of a rank of `run --strategy ddp`, the events of a rank, and one report of those of all ranks.

Nothing here knows the sampler's rule.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, Self

from dpdemo.arithmetic.sampler import Visit
from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.errors import RunError
from dpdemo.ranks.events import Event, Failure
from dpdemo.results.batches import BatchGroup, Outside, Replica
from dpdemo.results.devices import Devices
from dpdemo.results.distribution import Distribution, Indices, RankPlace
from dpdemo.results.split import SplitReport
from dpdemo.results.splitdata import trace_visits


class PeerLostError(RunError):
    """Raised in a rank that loses its connection to another one."""


@dataclass(frozen=True)
class Job:
    """The epoch that each rank runs its part of."""

    config: Config
    timeout: timedelta
    virtual: bool

    def to_text(self) -> str:
        """Write it in one line, for the command of a rank."""
        return json.dumps([self.config.values(), self.timeout.total_seconds(), self.virtual])

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` wrote."""
        values, seconds, virtual = json.loads(text)
        return cls(make_config(values), timedelta(seconds=seconds), virtual)


class EpochProgress(Event):
    """Rank 0 is on its way through the epoch."""

    done: int
    total: int


class Refusal(Failure):
    """The rank failed with an error of ours, about the key `at`, which the launcher raises again."""

    is_usage: bool = False


class RankRecord(Event):
    """The rank came to the end of its epoch, or to Ctrl-C."""

    config: dict[str, Any]  # the keys that were set, and those that the launcher or the user's model did
    place: RankPlace
    batch_size: int
    batches: tuple[BatchGroup, ...]
    drawn: tuple[int, ...]  # its sampler's samples, in order

    def __post_init__(self) -> None:
        if not isinstance(self.place, RankPlace):  # it was read from a line
            vars(self).update(place=RankPlace(*self.place), batches=tuple(map(_group, self.batches)))


def _group(values: Any) -> BatchGroup:
    first, count, size, in_model, idle, outside = values
    replicas = tuple(Replica(*each) for each in in_model)
    return BatchGroup(first, count, size, replicas, Devices(idle), Outside(*outside))


def merge(records: Sequence[RankRecord], *, virtual: bool = False, partial: bool = False) -> SplitReport:
    """Make one report of all ranks' records, given in the order of the ranks.

    An interrupted run is reported up to the last batch that every rank has done.
    """
    config = make_config(records[0].config)
    num_batches = min(sum(group.count for group in record.batches) for record in records)
    report = SplitReport(
        "run",
        config,
        Devices(record.place.device for record in records),
        tuple(_merged_batches(records, num_batches)),
        strategy="ddp",
        wrapped=config.wrapped,
        virtual=virtual,
        partial=partial,
        distribution=_distribution(config, records, num_batches, partial=partial),
    )
    if config.trace_sample is None:
        return report
    visits = [visit for record in records for visit in _visits(record, config.trace_sample, num_batches)]
    return replace(report, trace=trace_visits(report, config.trace_sample, visits))


def _visits(record: RankRecord, sample: int, num_batches: int) -> Iterator[Visit]:
    """Find where a rank drew a sample: in which of its batches, and as which row."""
    start = 0
    for group in record.batches:
        stop = start + group.count * group.batch_size
        for place, drawn in enumerate(record.drawn[start:stop]):
            number, row = divmod(place, group.batch_size)
            if drawn == sample and group.first + number <= num_batches:
                yield Visit(record.place.rank, group.first + number, row)
        start = stop


def _merged_batches(records: Sequence[RankRecord], num_batches: int) -> Iterator[BatchGroup]:
    starts = sorted({group.first for record in records for group in record.batches} | {num_batches + 1})
    for first, following in pairwise(starts):
        if first > num_batches:
            return
        groups = [_at(record, first) for record in records]
        yield BatchGroup(
            first=first,
            count=min(following, num_batches + 1) - first,
            batch_size=sum(group.batch_size for group in groups),
            in_model=tuple(map(_rank, records, groups)),
            idle=Devices(),
            outside=groups[0].outside,
        )


def _at(record: RankRecord, number: int) -> BatchGroup:
    return next(group for group in record.batches if group.first <= number <= group.last())


def _rank(record: RankRecord, group: BatchGroup) -> Replica:
    seen, place = group.in_model[0], asdict(record.place)
    return Replica(record.place.rank, place.pop("device"), seen.rows, seen.input, seen.output, **place)


def _distribution(
    config: Config, records: Sequence[RankRecord], num_batches: int, *, partial: bool
) -> Distribution:
    times = [0] * config.data_size
    for record in records:
        for sample in record.drawn[: _num_rows(record, num_batches)]:
            times[sample] += 1
    repeated = [sample for sample, count in enumerate(times) if count > 1]
    # what an interrupted epoch would still have drawn is not known
    missed = [] if partial else [sample for sample, count in enumerate(times) if not count]
    return Distribution(
        nodes=len({record.place.node for record in records}),
        batch_size=max(record.batch_size for record in records),
        global_batch_size=sum(record.batch_size for record in records),
        drawn=sum(times),
        num_repeated=sum(count - 1 for count in times if count > 1),
        num_dropped=len(missed),
        repeated=None if config.shuffle else _indices(repeated),
        dropped=None if config.shuffle else _indices(missed),
        world_size=len(records),
    )


def _num_rows(record: RankRecord, num_batches: int) -> int:
    """Count the rows of a rank's first batches."""
    return sum(
        group.batch_size * (min(group.last(), num_batches) - group.first + 1)
        for group in record.batches
        if group.first <= num_batches
    )


def _indices(samples: Sequence[int]) -> Indices:
    """Name samples in order, neighbouring ones as one range."""
    starts = [sample for before, sample in pairwise([-2, *samples]) if sample != before + 1]
    stops = [sample + 1 for sample, after in pairwise([*samples, -2]) if after != sample + 1]
    return tuple(map(range, starts, stops))
