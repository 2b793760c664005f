"""Records of all ranks, which rank 0 merges into one report; nothing here knows the sampler's rule."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import torch

from dpdemo.arithmetic.sampler import Visit
from dpdemo.config.fields import Config
from dpdemo.results.batches import BatchGroup, Replica
from dpdemo.results.devices import Devices
from dpdemo.results.distribution import Distribution, Indices, RankPlace
from dpdemo.results.split import SplitReport
from dpdemo.results.splitdata import trace_visits


@dataclass(frozen=True)
class RankRecord:
    """The record of one rank: its batches, and its sampler's samples in order."""

    place: RankPlace
    batch_size: int
    batches: tuple[BatchGroup, ...]
    drawn: torch.Tensor


def merge(config: Config, records: Sequence[RankRecord], *, partial: bool = False) -> SplitReport:
    """Make one report of all ranks' records, given in the order of the ranks.

    An interrupted run is reported up to the last batch that every rank has done.
    """
    devices = Devices(record.place.device for record in records)
    num_batches = min(sum(group.count for group in record.batches) for record in records)
    report = SplitReport(
        "run",
        config,
        devices,
        tuple(_merged_batches(records, num_batches)),
        strategy="ddp",
        wrapped=config.wrapped,
        partial=partial,
        distribution=_distribution(config, records, num_batches, partial=partial),
    )
    if config.trace_sample is None:
        return report
    visits = [visit for record in records for visit in _visits(record, config.trace_sample, num_batches)]
    return replace(report, trace=trace_visits(report, config.trace_sample, visits))


def _visits(record: RankRecord, sample: int, num_batches: int) -> Iterator[Visit]:
    """Find where a rank drew a sample: in which of its batches, and as which row."""
    places = (record.drawn == sample).nonzero().flatten().tolist()
    start = 0
    for group in record.batches:
        stop = start + group.count * group.batch_size
        for place in places:
            number, row = divmod(place - start, group.batch_size)
            if start <= place < stop and group.first + number <= num_batches:
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
    drawn = torch.cat([record.drawn[: _num_rows(record, num_batches)] for record in records])
    times = drawn.bincount(minlength=config.data_size)
    # what an interrupted epoch would still have drawn is not known
    missed = times.new_zeros(config.data_size) if partial else times == 0
    return Distribution(
        nodes=len({record.place.node for record in records}),
        batch_size=max(record.batch_size for record in records),
        global_batch_size=sum(record.batch_size for record in records),
        drawn=sum(_num_rows(record, num_batches) for record in records),
        num_repeated=int((times - 1).clamp_(min=0).sum()),
        num_dropped=int(missed.sum()),
        repeated=None if config.shuffle else _indices(times > 1),
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


def _indices(which: torch.Tensor) -> Indices:
    """Name the places that are true, neighbouring ones as one range."""
    edges = torch.nn.functional.pad(which.to(torch.int8), (1, 1)).diff().nonzero().flatten().tolist()
    return tuple(range(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True))
