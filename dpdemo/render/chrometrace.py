"""Timelines in Chrome's trace format, which Perfetto opens: a process per timeline, a thread per lane.

The format counts in microseconds. Where a timeline's axis is not time, its unit is one millisecond there, and
its process says so.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from dpdemo.reports.timeline import Arrow, Block, Timeline
from dpdemo.saving import replacing

_MICROSECONDS = 1000.0
TRACE_ENDING = "trace.json"
"""How the name of a file that is to be a trace ends: `trace.json`, `step.trace.json`."""


def is_trace(path: PurePath) -> bool:
    """Return whether a file of this name is to be a trace, not a report."""
    return path.name.lower().endswith(TRACE_ENDING)


def trace_json(timelines: Sequence[Timeline]) -> str:
    """Write timelines as a trace."""
    events = [event for number, timeline in enumerate(timelines, 1) for event in _events(number, timeline)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, indent=1) + "\n"


def save_trace(timelines: Sequence[Timeline], path: str | os.PathLike[str]) -> None:
    """Save timelines as a trace.

    Raises:
        RunError: if writing fails half-way.

    """
    with replacing(path) as file:
        file.write(trace_json(timelines))


def _events(process: int, timeline: Timeline) -> Iterator[dict[str, object]]:
    named = timeline.title if timeline.is_time else f"{timeline.title} ({timeline.axis})"
    yield _named("process_name", process, 0, named)
    for lane, name in enumerate(timeline.lanes):
        yield _named("thread_name", process, lane, name)
        order = {"args": {"sort_index": lane}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": lane, **order}
    lanes = {name: lane for lane, name in enumerate(timeline.lanes)}
    for block in timeline.blocks:
        yield _block(process, lanes[block.lane], block)
    for number, arrow in enumerate(timeline.arrows):
        yield from _arrow(f"{process}.{number}", process, lanes, arrow)


def _named(what: str, process: int, lane: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": what, "pid": process, "tid": lane, "args": {"name": name}}


def _block(process: int, lane: int, block: Block) -> dict[str, object]:
    return {
        "ph": "X",
        "name": block.name,
        "cat": block.work,
        "pid": process,
        "tid": lane,
        "ts": block.start * _MICROSECONDS,
        "dur": block.length * _MICROSECONDS,
        "args": {"detail": block.detail} if block.detail else {},
    }


def _arrow(number: str, process: int, lanes: dict[str, int], arrow: Arrow) -> Iterator[dict[str, object]]:
    """Write a flow: it leaves the block around its start in one lane, and enters the one around its end."""
    shared = {"name": arrow.name, "cat": "copy", "id": number, "pid": process}
    inside = arrow.length * _MICROSECONDS / 100  # a flow that starts on an edge belongs to neither block
    start = arrow.start * _MICROSECONDS
    yield {
        **shared,
        "ph": "s",
        "tid": lanes[arrow.source],
        "ts": start + inside,
        "args": {"bytes": arrow.num_bytes},
    }
    end = start + arrow.length * _MICROSECONDS - inside
    yield {**shared, "ph": "f", "bp": "e", "tid": lanes[arrow.target], "ts": end}
