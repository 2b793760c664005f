"""A report as JSON, written an entry at a time: a hundred thousand replicas are never held at once."""

import json
import math
from collections.abc import Iterable, Iterator

from dpdemo.distribution import Distribution, Indices
from dpdemo.render.plain import listed
from dpdemo.render.shapes import is_lone
from dpdemo.render.wire import (
    SCHEMA,
    DistributionJson,
    OutsideJson,
    ReplicaJson,
    ShapesJson,
    StopJson,
    TotalsJson,
    TraceJson,
)
from dpdemo.report import BatchGroup, Outside, Shapes, SplitReport
from dpdemo.trace import Trace

DIGITS = 6


def pieces(report: SplitReport, *, verbose: bool) -> Iterator[str]:
    """Yield the text of a `ReportJson` (see wire.py)."""
    yield "{"
    for key, value in _head(report).items():
        yield f'"{key}": {json.dumps(value)},\n '
    yield from _array("devices", map(json.dumps, report.devices), ", ")
    yield f',\n "config": {json.dumps(report.config.model_dump(mode="json"))},\n '
    yield '"batches": ['
    for number, group in enumerate(listed(report, verbose=verbose)):
        yield ",\n  " if number else "\n  "
        yield from _batch(report, group)
    yield "],\n "
    if report.distribution is not None:
        yield f'"distribution": {json.dumps(_distribution(report.distribution))},\n '
    if report.trace is not None:
        yield f'"trace": {json.dumps(_trace(report.trace))},\n '
    yield f'"totals": {json.dumps(_totals(report))}}}\n'


def _head(report: SplitReport) -> dict[str, str | bool]:
    return {
        "schema": SCHEMA,
        "command": report.command,
        "strategy": report.strategy,
        "model": report.model,
        "wrapped": report.wrapped,
        "virtual": report.virtual,
        "partial": report.partial,
    }


def _batch(report: SplitReport, group: BatchGroup) -> Iterator[str]:
    yield f'{{"first": {group.first}, "count": {group.count}, "batch_size": {group.batch_size},\n   '
    yield from _array("in_model", map(json.dumps, replicas_json(group, report.distribution)), ",\n    ")
    yield ",\n   "
    yield from _array("idle", map(json.dumps, group.idle), ", ")
    yield f',\n   "outside": {json.dumps(outside_json(group.outside))},\n   '
    yield f'"utilization": {rounded(group.utilization)}, "sample_weight": {rounded(group.sample_weight)}}}'


def _array(key: str, items: Iterable[str], separator: str) -> Iterator[str]:
    yield f'"{key}": ['
    for number, item in enumerate(items):
        yield separator + item if number else item
    yield "]"


def replicas_json(group: BatchGroup, distribution: Distribution | None = None) -> Iterator[ReplicaJson]:
    """Yield an entry for each replica."""
    for run in group.in_model:
        input_shapes, output_shapes = shapes_json(run.input), shapes_json(run.output)
        for number, device in enumerate(run.devices, run.first):
            replica = ReplicaJson(
                replica=number, device=device, rows=run.rows, input=input_shapes, output=output_shapes
            )
            if distribution is not None:
                place = distribution.place(number)
                replica |= {"rank": number, "node": place.node, "local_rank": place.local_rank}
            yield replica


def _distribution(found: Distribution) -> DistributionJson:
    return DistributionJson(
        world_size=found.world_size,
        nodes=found.num_nodes,
        batch_size_per_rank=found.batch_size,
        global_batch_size=found.global_batch_size,
        drawn=found.drawn,
        num_repeated=found.num_repeated,
        num_dropped=found.num_dropped,
        repeated=_spans(found.repeated),
        dropped=_spans(found.dropped),
    )


def _trace(trace: Trace) -> TraceJson:
    stops = [
        StopJson(
            batch=stop.batch,
            replica=stop.replica,
            device=stop.device,
            row=stop.row,
            output_row=stop.output_row,
            output_device=stop.output_device,
        )
        for stop in trace.stops
    ]
    return TraceJson(sample=trace.sample, stops=stops)


def _spans(indices: Indices | None) -> list[tuple[int, int]] | None:
    return None if indices is None else [(span[0], span[-1]) for span in indices]


def outside_json(outside: Outside) -> OutsideJson:
    """Give what is seen outside."""
    return OutsideJson(
        input_device=outside.input_device,
        device=outside.device,
        input=shapes_json(outside.input),
        output=shapes_json(outside.output),
    )


def _totals(report: SplitReport) -> TotalsJson:
    totals = report.totals
    weight = report.sample_weight
    return TotalsJson(
        batches=totals.batches,
        samples=totals.samples,
        utilization=rounded(totals.utilization),
        sample_weight=None if math.isnan(weight) else rounded(weight),
    )


def shapes_json(shapes: Shapes) -> ShapesJson:
    """Give a lone tensor's shape as a list, a structure's as an object, an unknown one as null."""
    if not shapes:
        return None
    if is_lone(shapes):
        return list(shapes[0][1])
    return {path: list(shape) for path, shape in shapes}


def rounded(number: float) -> float:
    """Round a ratio to the digits that JSON and its readers need."""
    return round(number, DIGITS)


def finite(number: float | None) -> float | None:
    """Give a number as JSON can write it: what is infinite or not a number is null."""
    return None if number is None or not math.isfinite(number) else number
