"""The result of `dpdemo exec`: a program's DataParallel calls, its copies, and the peak of each GPU."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dpdemo.results.batches import BatchGroup
from dpdemo.results.check import CheckReport
from dpdemo.results.devices import Devices, alike, label
from dpdemo.results.formats import in_json
from dpdemo.results.grouptable import Groups, GroupTable
from dpdemo.results.ranks import RanksResult
from dpdemo.results.report import Report
from dpdemo.results.table import Block, Canvas, Table, styled
from dpdemo.results.tokens import SeenTokens, seen_tokens
from dpdemo.sizes import size
from dpdemo.wording import counted

MAX_USES = 12
"""Objects drawn; the JSON form has them all."""
MAX_WORLDS = 4
"""Worlds of ranks drawn."""
MAX_SPLITS = 8
"""Splits drawn of one object."""


@dataclass(frozen=True, slots=True)
class Use:
    """One module in DataParallel, or all calls of it by a functional one: how its calls were split.

    `wrapper` is the wrapper's class, or the function that was called; `module` the class of what it wraps;
    `number` its place in the order of construction, from 1; `num_objects` how often the module, or another of
    its class at the same place of the program, was wrapped alike; of a function the number of its modules.
    Each of `splits` represents all calls that were split alike: `first` is the number of the first of them,
    `count` how many there were. An empty `in_model` is a call whose split was not seen. `num_unlisted` calls
    were split in yet other ways. `tokens` is there where the arguments tell tokens from padding.
    """

    number: int
    wrapper: str
    module: str
    devices: Devices
    splits: tuple[BatchGroup, ...]
    num_calls: int
    num_failed: int = 0
    num_unlisted: int = 0
    is_function: bool = False
    in_replica: bool = False
    num_objects: int = 1
    tokens: "SeenTokens | None" = field(default=None, metadata=in_json(null=False))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes copied between the host and the GPUs, and between GPUs, and the number of copies."""

    host_to_device_bytes: int
    device_to_device_bytes: int
    device_to_host_bytes: int
    num_host_to_device: int
    num_device_to_device: int
    num_device_to_host: int


@dataclass(frozen=True, slots=True)
class ExecReport(Report):
    """A program's run on virtual GPUs.

    `peak_bytes` has one number per GPU, since the program's start or since its own last
    `torch.cuda.reset_peak_memory_stats`. `set_visible` is what the program set CUDA_VISIBLE_DEVICES to, if it
    did; `num_hidden` is how many GPUs it did not see for that, and `is_set_late` says that this came after
    CUDA had read it, and so changed nothing; where the program did not start CUDA at all (`is_started`), only
    the processes that it started can have read it. `capacity_bytes` has what each GPU could hold, where that
    was limited.
    """

    SCHEMA: ClassVar[str] = "dpdemo.exec/1"
    DERIVED: ClassVar[tuple[str, ...]] = ("virtual", "memory")
    virtual: ClassVar[bool] = True
    program: str
    arguments: tuple[str, ...]
    devices: Devices
    uses: tuple[Use, ...] = field(metadata=in_json("data_parallel"))
    traffic: Traffic = field(metadata=in_json("moved"))
    peak_bytes: tuple[int, ...] = field(metadata=in_json(""))
    set_visible: str | None = field(default=None, metadata=in_json("cuda_visible_devices"))
    num_hidden: int = field(default=0, metadata=in_json("num_hidden_gpus"))
    is_set_late: bool = field(default=False, metadata=in_json("is_cuda_visible_devices_late"))
    is_started: bool = field(default=True, metadata=in_json("is_cuda_started"))
    capacity_bytes: tuple[int, ...] | None = field(default=None, metadata=in_json(""))
    check: CheckReport | None = field(
        default=None, metadata=in_json(form=lambda check: check and check.data())
    )
    """The result of a check of its calls, if one was requested."""
    ranks: tuple[RanksResult, ...] = ()
    """The ranks that the program started: a result for each of their worlds."""

    @property
    def memory(self) -> list[dict[str, Any]]:
        """The peak and the capacity of each GPU, as JSON has them."""
        return [
            {"device": device, "peak_bytes": peak, "capacity_bytes": capacity}
            for device, (peak, capacity) in self.peaks.items()
        ]

    @property
    def peaks(self) -> dict[str, tuple[int, int | None]]:
        """The peak of each GPU and its capacity; None if that was not limited."""
        limits = self.capacity_bytes or (None,) * len(self.peak_bytes)
        held = zip(self.peak_bytes, limits, strict=True)
        return dict(zip(self.devices, held, strict=True))

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield the picture: each object's calls, the bytes moved, and the peaks."""
        parts = [_draw(self, canvas)] if self.uses or not self.ranks else []
        parts += [ranks.blocks(canvas) for ranks in self.ranks[:MAX_WORLDS]]
        if len(self.ranks) > MAX_WORLDS:
            parts.append(iter([styled(f"... and {len(self.ranks) - MAX_WORLDS} more worlds of ranks")]))
        for number, part in enumerate(parts):
            if number:
                yield ()
            yield from part


def _draw(report: ExecReport, canvas: Canvas) -> Iterator[Block]:
    gpus = counted(len(report.devices), "virtual GPU")
    yield styled(f"Ran on {gpus}: {report.program}", "bold")
    if not report.uses:
        yield styled("DataParallel was not used: the program never made one.")
    for use in report.uses[:MAX_USES]:
        yield ()
        yield from _use(use, canvas)
    if len(report.uses) > MAX_USES:
        yield ()
        more = len(report.uses) - MAX_USES
        yield styled(f"... and {more} more; --save FILE.json lists them all")
    yield ()
    sums = _sums(report)
    yield sums if sums.rows else styled("This process moved no tensor to a GPU.")
    if report.set_visible is not None:
        yield styled(_visible(report))


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


def _use(use: Use, canvas: Canvas) -> Iterator[Block]:
    yield styled(name(use), "bold")
    shown = Groups(use.devices, use.splits[:MAX_SPLITS])
    table = GroupTable(shown, canvas)
    for index, group in enumerate(shown.batches):
        if index:
            yield ()
        yield styled(heading(use, group), "dim")
        if group.in_model:
            yield from table.blocks(group)
        else:
            yield styled("split by a parallel_apply of its own, which was not watched")
    if rest := sum(group.count for group in use.splits[MAX_SPLITS:]) + use.num_unlisted:
        more = f"... and {counted(rest, 'call')} split in other ways"
        yield styled(f"{more}; --save FILE.json lists more of them")
    if use.tokens is not None:
        yield ()
        yield from seen_tokens(use.tokens, canvas)
    if not use.num_calls and not use.num_failed:
        yield styled(
            "Only a call of the DataParallel object itself is split: its `.module` and other methods run "
            f"on {use.devices[0] if use.devices else 'one device'} alone."
        )


def name(use: Use) -> str:
    """Name an object and sum up its calls: `DataParallel(Model) #1 on cuda:0–2: 4 calls`."""
    what = f"{use.wrapper}({use.module}) #{use.number}"
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


def _sums(report: ExecReport) -> Table:
    rows = Table(("keep", "keep", "right", "fold"))
    moved = report.traffic
    routes = (
        ("host → device", moved.host_to_device_bytes, moved.num_host_to_device),
        ("device → device", moved.device_to_device_bytes, moved.num_device_to_device),
        ("device → host", moved.device_to_host_bytes, moved.num_device_to_host),
    )
    for route, num_bytes, copies in routes:
        if copies:
            first = styled("" if rows.rows else "Moved", "bold")
            rows.add(first, route, size(num_bytes), f"in {counted(copies, 'copy')}")
    held = alike(report.peaks, report.peaks.__getitem__) if any(report.peak_bytes) else {}
    for index, ((peak, capacity), names) in enumerate(held.items()):
        limits = [*(["each"] if len(names) > 1 else []), *(["of " + size(capacity)] if capacity else [])]
        first = styled("" if index else "Peak", "bold")
        rows.add(first, label(names), size(peak), ", ".join(limits))
    return rows
