"""The result of `speedup`: a row per cost, DataParallel and DDP beside each other; times in milliseconds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from dpdemo.results.formats import Row
from dpdemo.results.report import TableReport
from dpdemo.results.table import Block, Canvas, Table, right, stacked, styled
from dpdemo.sizes import size
from dpdemo.wording import counted, ms_span


@dataclass(frozen=True, slots=True)
class Ends:
    """The least and the most: of a time in milliseconds, or of a rate in GB/s (10⁹ bytes)."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Link:
    """A link between GPUs: its rate from one to another, and that of NCCL's ring over all.

    `hides_ring` means that a backward can run while the ring does.
    """

    name: str
    copy_rate: Ends
    ring_rate: Ends
    hides_ring: bool


@dataclass(frozen=True, slots=True)
class Launches:
    """The work of Python for each replica: operators of a forward and a backward, modules, tensors."""

    forward: int
    backward: int
    modules: int
    tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The bytes of a model, and of the inputs and outputs of all `rows`; `launches` is None if unknown.

    Gradients of outputs are copied if the loss is computed on gathered outputs, those of inputs if something
    before the split part is trained.
    """

    name: str
    rows: int
    num_parameters: int
    parameter_bytes: int
    gradient_bytes: int
    buffer_bytes: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    output_gradient_bytes: int = 0
    input_gradient_bytes: int = 0
    launches: Launches | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """The costs of one strategy: the rows of each GPU, the bytes of each kind, times of copies and launches.

    `break_even_ms` is the step of one GPU, with all rows, from which the strategy is faster; None if they
    cannot be divided. `replicate_ms` is the time to copy the modules of all replicas, `launch_ms` to launch
    their forwards, a thread at a time; None if unknown, and under DDP, where each replica has a process.
    """

    strategy: str
    rows: tuple[int, ...]
    num_bytes: dict[str, int]
    copies_ms: Ends
    replicate_ms: Ends | None
    launch_ms: Ends | None
    break_even_ms: Ends | None


@dataclass(frozen=True, slots=True)
class SpeedupReport(TableReport):
    """The costs of sharing a batch over several GPUs, and from which step of one GPU on they pay."""

    SCHEMA: ClassVar[str] = "dpdemo.speedup/2"
    DERIVED: ClassVar[tuple[str, ...]] = ("summary",)
    columns: ClassVar[tuple[str, ...]] = (
        *("strategy", "num_bytes", "copies_ms_low", "copies_ms_high"),
        *("break_even_ms_low", "break_even_ms_high"),
    )
    workload: Workload
    link: Link
    num_gpus: int
    ways: tuple[Way, ...]

    @property
    def summary(self) -> str:
        """The break-even of each strategy in a line."""
        even = {way.strategy: way.break_even_ms for way in self.ways if way.break_even_ms is not None}
        if not even:
            return "Nothing to gain: the batch is not divided"
        spans = ", ".join(f"{_span(ms)} ({strategy})" for strategy, ms in even.items())
        gpus = f"{counted(self.num_gpus, 'GPU')} over {self.link.name}"
        return f"{gpus} pay if one GPU needs longer than {spans} for a step of {_rows(self.workload)}"

    def each_row(self) -> Iterator[Row]:
        """Yield a row for each strategy."""
        for way in self.ways:
            copies, even = way.copies_ms, way.break_even_ms
            ends = (None, None) if even is None else (even.low, even.high)
            yield way.strategy, sum(way.num_bytes.values()), copies.low, copies.high, *ends

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield the workload, the costs of both strategies, and the answer."""
        work, gpus = self.workload, counted(self.num_gpus, "GPU")
        yield styled(f"Does it pay? {work.name}, {_rows(work)} over {gpus} and {self.link.name}", "bold")
        yield stacked([_setting(work), _rates(self.link)], "dim")
        yield ()
        table = Table(("keep", *right(len(self.ways))), head=("", *(way.strategy for way in self.ways)))
        for name, cells in _costs(self.ways):
            if any(cells):
                table.add(name, *(cell or "–" for cell in cells))
        for number, band in enumerate(table.bands(canvas)):
            if number:
                yield ()
            yield band
        yield ()
        yield styled(f"{self.summary}.", "bold")
        yield styled("Not counted: reading and preparing the data for all GPUs.", "dim")


def _rows(work: Workload) -> str:
    return counted(work.rows, "row")


def _setting(work: Workload) -> str:
    """Describe the whole batch on one GPU."""
    parts = [f"{work.num_parameters:,} parameters ({size(work.parameter_bytes)})"]
    sizes = (("buffers", work.buffer_bytes), ("inputs", work.input_bytes), ("outputs", work.output_bytes))
    parts += [f"{name} {size(num_bytes)}" for name, num_bytes in sizes if num_bytes]
    if work.launches is not None:
        parts.append(f"operators {work.launches.forward:,} forward, {work.launches.backward:,} backward")
    return ", ".join(parts)


def _rates(link: Link) -> str:
    """Describe the assumed rates of the link."""
    copies, ring = (
        f"{rate.low:g} GB/s" if rate.low == rate.high else f"{rate.low:g}–{rate.high:g} GB/s"
        for rate in (link.copy_rate, link.ring_rate)
    )
    return f"{link.name}: {copies} from one GPU to another, {ring} in NCCL's ring"


def _costs(ways: tuple[Way, ...]) -> Iterator[tuple[str, list[str]]]:
    """List the rows of the table, with "" where a strategy lacks the cost."""
    yield "rows on each GPU", [_each(way.rows) for way in ways]
    for name in dict.fromkeys(name for way in ways for name in way.num_bytes):
        yield name, [size(way.num_bytes[name]) if way.num_bytes.get(name) else "" for way in ways]
    yield "copies take", [_span(way.copies_ms) if way.num_bytes else "" for way in ways]
    yield "replicas are made in", [_span(way.replicate_ms) for way in ways]
    yield "forwards are launched in", [_span(way.launch_ms) for way in ways]
    yield "pays if longer than", [_span(way.break_even_ms) for way in ways]


def _each(rows: tuple[int, ...]) -> str:
    same = f"{rows[0]} × {rows.count(rows[0])}"
    return same if rows[-1] == rows[0] else f"{same}, {rows[-1]}"


def _span(ends: Ends | None) -> str:
    return "" if ends is None else ms_span(ends.low, ends.high)
