"""The picture of an `ExecReport`: each DataParallel's splits, the bytes moved, and what each GPU held."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dpdemo.devices import Devices
from dpdemo.execreport import ExecReport, Use
from dpdemo.render.glyphs import fit, printable
from dpdemo.render.layout import GAP
from dpdemo.render.sizes import counted, size
from dpdemo.render.table import GroupPicture
from dpdemo.render.trimming import Trimmed
from dpdemo.report import BatchGroup

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


def print_execution(report: ExecReport, console: Console) -> None:
    """Print the whole picture."""
    for part in _parts(report, console):
        console.print(Trimmed(Text(fit(part, console.encoding)) if isinstance(part, str) else part))


def _parts(report: ExecReport, console: Console) -> Iterator[RenderableType]:
    yield Text(fit(title(report), console.encoding), "bold")
    if not report.uses:
        yield "DataParallel was not used: the program never made one."
    for use in report.uses[:MAX_USES]:
        yield Text()
        yield from _use(use, console)
    if len(report.uses) > MAX_USES:
        yield Text()
        yield f"... and {len(report.uses) - MAX_USES} more; --report FILE.json lists them all"
    yield Text()
    yield _sums(report, console.encoding)
    if report.set_visible is not None:
        yield (
            f"The program set CUDA_VISIBLE_DEVICES to {report.set_visible!r}; virtual GPUs do not heed it, "
            f"so it saw all {len(report.devices)}."
        )


def title(report: ExecReport) -> str:
    """Say what ran where: `Ran on 8 virtual GPUs: train.py`."""
    return f"Ran on {counted(len(report.devices), 'virtual GPU')}: {printable(report.program)}"


def _use(use: Use, console: Console) -> Iterator[RenderableType]:
    yield Text(fit(name(use), console.encoding), "bold")
    shown = _Shown(use.devices, use.splits[:MAX_SPLITS])
    picture = GroupPicture(shown, console)
    for index, group in enumerate(shown.batches):
        if index:
            yield Text()
        yield Text(fit(heading(use, group), console.encoding), "dim")
        if group.in_model:
            yield from picture.group(group)
        else:
            yield "split by a parallel_apply of its own, which was not watched"
    rest = use.splits[MAX_SPLITS:]
    if rest or use.num_unlisted:
        calls = sum(group.count for group in rest) + use.num_unlisted
        yield f"... and {counted(calls, 'call')} split in other ways; --report FILE.json lists more of them"
    if not use.num_calls and not use.num_failed:
        yield (
            "Only a call of the DataParallel object itself is split: its `.module` and other methods run "
            f"on {use.devices.name(0) if use.devices else 'one device'} alone."
        )


def name(use: Use) -> str:
    """Name an object and sum up its calls: `DataParallel(Model) #1 on cuda:0–2: 4 calls`."""
    what = f"{printable(use.wrapper)}({printable(use.module)}) #{use.number}"
    where = " inside a replica" if use.in_replica else f" on {use.devices}" if use.devices else ""
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


def _sums(report: ExecReport, encoding: str) -> Table:
    grid = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(overflow="fold")
    for index, (route, moved, copies) in enumerate(_routes(report)):
        label = Text("" if index else "Moved", "bold")
        grid.add_row(
            label, Text(fit(route, encoding)), size(moved), f"in {copies} cop{'y' if copies == 1 else 'ies'}"
        )
    for index, (devices, peak, capacity) in enumerate(peaks(report)):
        label = Text("" if index else "Peak", "bold")
        each = ["each"] if len(devices) > 1 else []
        limit = [] if capacity is None else [f"of {size(capacity)}"]
        grid.add_row(label, Text(fit(str(devices), encoding)), size(peak), ", ".join(each + limit))
    return grid


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
        yield report.devices[start:stop], peak, capacity
        start = stop
