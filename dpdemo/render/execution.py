"""The picture of an `ExecReport`: each DataParallel's splits, the bytes moved, and what each GPU held."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dpdemo.bytesize import size
from dpdemo.render.console import Canvas, grid
from dpdemo.render.files import Drawing
from dpdemo.render.markdown import escaped, table
from dpdemo.render.split.lines import group_lines
from dpdemo.render.split.table import GroupPicture
from dpdemo.render.split.tokens import seen_markdown, seen_tokens
from dpdemo.reports.devices import Devices
from dpdemo.reports.execution import ExecReport, Use
from dpdemo.reports.split import BatchGroup
from dpdemo.wording import counted, printable

MAX_USES = 12
"""Objects drawn; the JSON form has them all."""
MAX_SPLITS = 8
"""Splits drawn of one object."""


@dataclass(frozen=True)
class _Shown:
    """The splits of one object that are drawn."""

    devices: Devices
    batches: tuple[BatchGroup, ...]
    wrapped: str = ""


def drawing(report: ExecReport) -> Drawing:
    """Make the drawing of what a program did."""
    return Drawing.of(report, "dpdemo exec", partial(_draw, report), markdown=partial(_markdown, report))


def _draw(report: ExecReport, canvas: Canvas) -> Iterator[RenderableType]:
    yield canvas.text(title(report), style="bold")
    if not report.uses:
        yield "DataParallel was not used: the program never made one."
    for use in report.uses[:MAX_USES]:
        yield Text()
        yield from _use(use, canvas)
    if len(report.uses) > MAX_USES:
        yield Text()
        yield _more_uses(report)
    yield Text()
    sums = _sums(report, canvas)
    yield sums if sums.row_count else "Nothing came to a GPU."
    if report.set_visible is not None:
        yield _visible(report)


def _visible(report: ExecReport) -> str:
    if not report.is_started:
        return (
            f"The program set CUDA_VISIBLE_DEVICES to {report.set_visible!r} and used no GPU itself: "
            "only the processes that it started can have read it."
        )
    seen = len(report.devices)
    which = f"{seen} of {seen + report.num_hidden}" if report.num_hidden else f"all {seen}"
    late = " after CUDA had read it" if report.is_set_late else ""
    return f"The program set CUDA_VISIBLE_DEVICES to {report.set_visible!r}{late}, so it saw {which}."


def _markdown(report: ExecReport) -> Iterator[str]:
    yield f"### {escaped(title(report))}\n"
    for use in report.uses[:MAX_USES]:
        yield f"\n{escaped(name(use))}\n"
        shown = _Shown(use.devices, use.splits[:MAX_SPLITS])
        for group in shown.batches:
            yield f"\n- {escaped(heading(use, group))}: "
            runs = (f"{line.rows} on {line.label}" for line in group_lines(shown, group) if not line.is_idle)
            yield "; ".join(filter(None, (*runs, f"{group.idle} idle" if group.idle else "")))
        yield f"\n- {rest}\n" if (rest := _more_splits(use)) else "\n"
        if use.tokens is not None:
            yield "\n"
            yield from seen_markdown(use.tokens)
    if len(report.uses) > MAX_USES:
        yield f"\n{_more_uses(report)}\n"
    yield "\n"
    rows = [(route, size(moved), counted(copies, "copy")) for route, moved, copies in _routes(report)]
    yield from table(("Moved", "Bytes", ""), rows)
    yield "\n"
    held = [(str(devices), size(peak), limit(devices, capacity)) for devices, peak, capacity in peaks(report)]
    yield from table(("Peak", "Bytes", ""), held)


def title(report: ExecReport) -> str:
    """Say what ran where: `Ran on 8 virtual GPUs: train.py`."""
    return f"Ran on {counted(len(report.devices), 'virtual GPU')}: {printable(report.program)}"


def _use(use: Use, canvas: Canvas) -> Iterator[RenderableType]:
    yield canvas.text(name(use), style="bold")
    shown = _Shown(use.devices, use.splits[:MAX_SPLITS])
    picture = GroupPicture(shown, canvas)
    for index, group in enumerate(shown.batches):
        if index:
            yield Text()
        yield canvas.text(heading(use, group), style="dim")
        if group.in_model:
            yield from picture.group(group)
        else:
            yield "split by a parallel_apply of its own, which was not watched"
    if rest := _more_splits(use):
        yield rest
    if use.tokens is not None:
        yield Text()
        yield from seen_tokens(use.tokens, canvas)
    if not use.num_calls and not use.num_failed:
        yield (
            "Only a call of the DataParallel object itself is split: its `.module` and other methods run "
            f"on {use.devices[0] if use.devices else 'one device'} alone."
        )


def _more_uses(report: ExecReport) -> str:
    return f"... and {len(report.uses) - MAX_USES} more; --report FILE.json lists them all"


def _more_splits(use: Use) -> str:
    """Return a line for the splits that are not drawn, or ""."""
    calls = sum(group.count for group in use.splits[MAX_SPLITS:]) + use.num_unlisted
    if not calls:
        return ""
    return f"... and {counted(calls, 'call')} split in other ways; --report FILE.json lists more of them"


def name(use: Use) -> str:
    """Name an object and sum up its calls: `DataParallel(Model) #1 on cuda:0–2: 4 calls`."""
    what = f"{printable(use.wrapper)}({printable(use.module)}) #{use.number}"
    where = " inside a replica" if use.in_replica else f" on {use.devices}" if use.devices else ""
    if use.num_objects > 1:
        where += f", {use.num_objects} modules" if use.is_function else f", wrapped {use.num_objects} times"
    if not use.num_calls and not use.num_failed:
        return f"{what}{where}: never called"
    failed = f", {use.num_failed} more failed" if use.num_failed else ""
    return f"{what}{where}: {counted(use.num_calls, 'call')}{failed}"


def heading(use: Use, group: BatchGroup) -> str:
    """Head the calls that were split alike: `3 calls, from call 1 on: 30 rows each`."""
    rows = counted(group.batch_size, "row")
    if group.count == use.num_calls:
        return f"{'The one call' if group.count == 1 else 'Every call'}: {rows}"
    if group.count == 1:
        return f"Call {group.first}: {rows}"
    return f"{counted(group.count, 'call')}, from call {group.first} on: {rows} each"


def _sums(report: ExecReport, canvas: Canvas) -> Table:
    rows = grid("keep", "keep", "right", "fold")
    routes = [route for route in _routes(report) if route[2]]
    for index, (route, moved, copies) in enumerate(routes):
        label = Text("" if index else "Moved", "bold")
        rows.add_row(label, canvas.text(route), size(moved), f"in {counted(copies, 'copy')}")
    held = list(peaks(report)) if any(report.peak_bytes) else []
    for index, (devices, peak, capacity) in enumerate(held):
        label = Text("" if index else "Peak", "bold")
        rows.add_row(label, canvas.text(str(devices)), size(peak), limit(devices, capacity))
    return rows


def limit(devices: Devices, capacity: int | None) -> str:
    """Say that a peak is that of each device, and of what capacity."""
    each = ["each"] if len(devices) > 1 else []
    return ", ".join(each + ([] if capacity is None else [f"of {size(capacity)}"]))


def _routes(report: ExecReport) -> Iterator[tuple[str, int, int]]:
    moved = report.traffic
    yield "host → device", moved.host_to_device_bytes, moved.num_host_to_device
    yield "device → device", moved.device_to_device_bytes, moved.num_device_to_device
    yield "device → host", moved.device_to_host_bytes, moved.num_device_to_host


def peaks(report: ExecReport) -> Iterator[tuple[Devices, int, int | None]]:
    """Yield each GPU's peak and capacity, neighbours with the same ones together."""
    start = 0
    for (peak, capacity), equal in itertools.groupby(report.peaks):
        stop = start + len(list(equal))
        yield Devices(report.devices[start:stop]), peak, capacity
        start = stop
