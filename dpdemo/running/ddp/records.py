"""Records of all ranks, which rank 0 merges into one report; nothing here knows the sampler's rule."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from dpdemo.arithmetic.sampler import Visit
from dpdemo.config.fields import Config
from dpdemo.results.batches import BatchGroup, Replica
from dpdemo.results.devices import Devices
from dpdemo.results.distribution import Distribution, Indices
from dpdemo.results.split import SplitReport
from dpdemo.results.tracing import trace_visits

MANY_RANGES = 16
"""With more strides than this a list of indices is stored as it is."""

Drawn = tuple[range, ...] | torch.Tensor


@dataclass(frozen=True)
class RankRecord:
    """The record of one rank: its batches, and its sampler's samples in order."""

    rank: int
    node: int
    local_rank: int
    device: str
    batch_size: int
    batches: tuple[BatchGroup, ...]
    drawn: Drawn


def compact(found: torch.Tensor) -> Drawn:
    """Store a sampler's indices as ranges where they rise by strides, else as they are."""
    steps = found.diff()
    turns = (steps.diff() != 0).nonzero().flatten().tolist()
    if len(turns) >= 2 * MANY_RANGES:
        return found
    return tuple(_strides(found, steps, turns))


def _strides(found: torch.Tensor, steps: torch.Tensor, turns: list[int]) -> Iterator[range]:
    start = 0
    while start < len(found):
        step = int(steps[start]) if start < len(steps) else 1
        turn = next((turn for turn in turns if turn >= start), len(found))
        stop = start + 1 if step < 1 else min(turn + 2, len(found))
        yield range(int(found[start]), int(found[stop - 1]) + 1, max(step, 1))
        start = stop


def merge(config: Config, records: Sequence[RankRecord], *, partial: bool = False) -> SplitReport:
    """Make one report of all ranks' records, given in the order of the ranks.

    An interrupted run is reported up to the last batch that every rank has done.
    """
    devices = Devices(record.device for record in records)
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
    drawn = record.drawn
    if not isinstance(drawn, torch.Tensor):
        drawn = torch.tensor([index for span in drawn for index in span], dtype=torch.int64, device="cpu")
    places = (drawn == sample).nonzero().flatten().tolist()
    start = 0
    for group in record.batches:
        stop = start + group.count * group.batch_size
        for place in places:
            number, row = divmod(place - start, group.batch_size)
            if start <= place < stop and group.first + number <= num_batches:
                yield Visit(record.rank, group.first + number, row)
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
    seen = group.in_model[0]
    place = {"rank": record.rank, "node": record.node, "local_rank": record.local_rank}
    return Replica(record.rank, record.device, seen.rows, seen.input, seen.output, **place)


def _distribution(
    config: Config, records: Sequence[RankRecord], num_batches: int, *, partial: bool
) -> Distribution:
    times = torch.zeros(config.data_size, dtype=torch.int32, device="cpu")
    drawn = 0
    for record in records:
        rows = sum(
            group.batch_size * (min(group.last(), num_batches) - group.first + 1)
            for group in record.batches
            if group.first <= num_batches
        )
        drawn += rows
        _count(times, record.drawn, rows)
    # what an interrupted epoch would still have drawn is not known
    missed = times.new_zeros(config.data_size) if partial else times == 0
    return Distribution(
        nodes=len({record.node for record in records}),
        batch_size=max(record.batch_size for record in records),
        global_batch_size=sum(record.batch_size for record in records),
        drawn=drawn,
        num_repeated=int((times - 1).clamp_(min=0).sum()),
        num_dropped=int(missed.sum()),
        repeated=None if config.shuffle else _indices(times > 1),
        dropped=None if config.shuffle else _indices(missed),
        world_size=len(records),
    )


def _count(times: torch.Tensor, drawn: Drawn, rows: int) -> None:
    """Count the first `rows` of the samples that a rank's sampler gave."""
    if isinstance(drawn, torch.Tensor):
        times.index_add_(0, drawn[:rows], torch.ones(min(rows, len(drawn)), dtype=times.dtype, device="cpu"))
        return
    for span in drawn:
        taken = span[:rows]
        if taken:
            times[taken.start : taken[-1] + 1 : taken.step] += 1
        rows -= len(taken)


def _indices(which: torch.Tensor) -> Indices:
    """Name the places that are true, neighbouring ones as one range."""
    edges = torch.nn.functional.pad(which.to(torch.int8), (1, 1)).diff().nonzero().flatten().tolist()
    return tuple(range(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True))
