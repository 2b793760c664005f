"""The result of `speedup`: a row per fact, a column per way, DataParallel and DDP beside each other."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from dpdemo.results.bars import lettered
from dpdemo.results.formats import Row
from dpdemo.results.report import TableReport
from dpdemo.results.speedupdata import (
    Anchor,
    Estimate,
    Link,
    PartName,
    PhaseName,
    Rate,
    Scaling,
    Way,
    Workload,
)
from dpdemo.results.table import SHORTEST_BAR, Block, Canvas, Line, Table, right, stacked, styled
from dpdemo.sizes import size
from dpdemo.wording import counted, ms_span

_PARTS: dict[PartName, tuple[str, str]] = {
    "load": ("L", "white"),
    "buffers": ("U", "white"),
    "scatter": ("S", "cyan"),
    "replicate": ("R", "bright_blue"),
    "forward": ("F", "green"),
    "launching": ("P", "bright_red"),
    "gather": ("G", "cyan"),
    "output gradients": ("O", "bright_cyan"),
    "backward": ("B", "bright_green"),
    "reduce": ("D", "magenta"),
    "all-reduce": ("A", "magenta"),
    "input gradients": ("I", "bright_cyan"),
}
"""The letter and the colour of each part of a step."""
_STYLES = {"pays": "bold green", "does not pay": "bold red", "cannot tell": "bold yellow"}
_BETWEEN = "  between"
"""The name of the row below a figure that holds its interval."""
_NONE = "–"
_Cells = tuple[str, list[str]]
"""The name of a fact, and a cell for each way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupReport(TableReport):
    """Whether more GPUs pay: a way for each strategy and number of GPUs.

    `method_error` is the largest error of the method on the project's published steps: every interval of a
    speed-up is wider by it.
    """

    SCHEMA: ClassVar[str] = "dpdemo.speedup/1"
    DERIVED: ClassVar[tuple[str, ...]] = ("summary",)
    columns: ClassVar[tuple[str, ...]] = (
        *("gpus", "strategy", "scaling", "moved_bytes", "copies_ms_low", "copies_ms_high"),
        *("break_even_ms_low", "break_even_ms_high", "step_ms", "speedup_low", "speedup", "speedup_high"),
        *("efficiency", "verdict"),
    )
    workload: Workload
    link: Link
    anchors: tuple[Anchor, ...]
    method_error: float
    ways: tuple[Way, ...]

    @property
    def summary(self) -> str:
        """A line that says from which step of one GPU on the fewest GPUs pay, for both strategies."""
        number = min((way.num_gpus for way in self.ways if way.num_gpus > 1), default=1)
        if number == 1:
            return "One GPU alone has nothing to gain or lose"
        said = [
            f"{way.weak.break_even_ms.span} ({way.strategy})"
            for way in self.ways
            if way.num_gpus == number and way.weak.break_even_ms is not None
        ]
        longer = f"pay if one GPU's step takes longer than {', '.join(said)}"
        return f"{number} GPUs over {self.link.name} {longer}"

    def each_row(self) -> Iterator[Row]:
        """Yield a row for each way and scaling; all after the break-even is None without a measured step."""
        for way in self.ways:
            yield way.num_gpus, way.strategy, "weak", *_row(way.weak)
            yield way.num_gpus, way.strategy, "strong", *_row(way.strong)

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield the tables, a bar per way for one step, the answer and the assumptions."""
        yield styled(_title(self), "bold")
        yield stacked([_setting(self), _link_line(self)], "dim")
        for head, rows in _sections(self.ways):
            yield ()
            yield styled(head, "bold")
            yield from _tables(self.ways, rows, canvas)
        if canvas.draws_bars and any(way.timeline for way in self.ways):
            yield ()
            is_whole = any(way.weak.step_ms for way in self.ways)
            heading = "One step, each GPU keeping its rows" if is_whole else "The copies of one step"
            yield styled(heading, "bold")
            yield from _timelines(self.ways, canvas)
        yield ()
        yield styled(f"{self.summary}.", "bold")
        yield stacked(_notes(self), "dim")


def _row(scaling: Scaling) -> Iterator[Any]:
    copies, even, gained = scaling.copies_ms, scaling.break_even_ms, scaling.speedup
    yield from (scaling.moved_bytes, copies.low, copies.high)
    yield from (None, None) if even is None else (even.low, even.high)
    yield None if scaling.step_ms is None else scaling.step_ms.point
    yield from (None, None, None) if gained is None else (gained.low, gained.point, gained.high)
    yield None if scaling.efficiency is None else scaling.efficiency.point
    yield scaling.verdict


def _title(report: SpeedupReport) -> str:
    """Ask the question: `Does it pay? gpt2 with 8 rows on each GPU, over nvlink3`."""
    rows = report.workload.rows
    each = "" if rows is None else f" with {counted(rows, 'row')} on each GPU"
    return f"Does it pay? {report.workload.name}{each}, over {report.link.name}"


def _setting(report: SpeedupReport) -> str:
    """Describe one GPU's share of a step."""
    work = report.workload
    parts = [f"{work.num_parameters:,} parameters ({size(work.parameter_bytes)})"]
    for name, num_bytes in (
        ("buffers", work.buffer_bytes),
        ("inputs", work.input_bytes),
        ("outputs", work.output_bytes),
    ):
        if num_bytes:
            parts.append(f"{name} {size(num_bytes)}")
    if work.launches is not None:
        operators = f"operator{'' if work.launches.forward == 1 else 's'}"
        parts.append(f"{work.launches.forward:,} {operators} forward, {work.launches.backward:,} backward")
    return ", ".join(parts)


def _link_line(report: SpeedupReport) -> str:
    """Describe the assumed rates of the link."""
    link = report.link
    if link.copy_rate == link.ring_rate:
        return f"the link carries {_rate(link.copy_rate)} one way"
    copies, ring = _rate(link.copy_rate), _rate(link.ring_rate)
    return f"{link.name}: {copies} from one GPU to another, {ring} in NCCL's ring"


def _rate(rate: Rate) -> str:
    return f"{rate.low:g} GB/s" if rate.low == rate.high else f"{rate.low:g}–{rate.high:g} GB/s"


def _sections(ways: tuple[Way, ...]) -> Iterator[tuple[str, list[_Cells]]]:
    """List the tables of a report: each with its heading and its rows."""
    phases = [{phase.name: phase.num_bytes for phase in way.weak.phases} for way in ways]
    copied = [
        (name, [size(found[name]) if found.get(name) else _NONE for found in phases])
        for name in get_args(PhaseName)
        if any(found.get(name) for found in phases)
    ]
    if copied:
        yield "What a step copies", copied
    costs = [("copies take", [way.weak.copies_ms.span for way in ways])]
    if any(way.lock_ms for way in ways):
        costs.append(("replicas are made in", [_span(way.replicate_ms) for way in ways]))
        costs.append(("forwards launched in", [_span(way.lock_ms) for way in ways]))
    yield "Each GPU keeps its rows", [*costs, *_gains([way.weak for way in ways])]
    shares = [("rows on each", [_rows(way.strong.rows) for way in ways if way.strong.rows])]
    is_known = len(shares[0][1]) == len(ways)
    divided = [*(shares if is_known else []), *_gains([way.strong for way in ways])]
    yield "The batch of one GPU is divided", divided


def _gains(scalings: list[Scaling]) -> Iterator[_Cells]:
    yield "pays if longer than", [_span(scaling.break_even_ms) for scaling in scalings]
    if any(scaling.speedup is None for scaling in scalings):
        return
    steps = [scaling.step_ms for scaling in scalings if scaling.step_ms]
    speedups = [scaling.speedup for scaling in scalings if scaling.speedup]
    yield "step", [ms.expected for ms in steps]
    yield _BETWEEN, [ms.span for ms in steps]
    yield "speed-up", [f"{found.point:.2f}" for found in speedups]
    yield _BETWEEN, [f"{found.low:.2f}–{found.high:.2f}" for found in speedups]
    yield "verdict", [scaling.verdict or _NONE for scaling in scalings]


def _span(estimate: Estimate | None) -> str:
    return _NONE if estimate is None else estimate.span


def _rows(rows: tuple[int, ...]) -> str:
    if len(set(rows)) == 1:
        return f"{rows[0]} × {len(rows)}"
    return f"{rows[0]} × {len(rows) - 1}, {rows[-1]}"


def _heading(way: Way) -> str:
    return f"{way.num_gpus} × {'DP' if way.strategy == 'DataParallel' else 'DDP'}"


def _tables(ways: tuple[Way, ...], rows: list[_Cells], canvas: Canvas) -> Iterator[Block]:
    """Yield as many columns in each table as fit, without parting the strategies of a number of GPUs."""
    table = Table(("keep", *right(len(ways))), head=("", *map(_heading, ways)))
    for name, cells in rows:
        style = "dim" if name == _BETWEEN else ""
        found = (styled(cell, _STYLES.get(cell, style)) for cell in cells)
        table.add(styled(name, style), *found)
    for number, band in enumerate(table.bands(canvas, step=2)):
        if number:
            yield ()
        yield band


def _timelines(ways: tuple[Way, ...], canvas: Canvas) -> Iterator[Block]:
    """Yield a bar for each way, on one scale, and what the letters in them mean."""
    table = Table(("keep", "right"))
    sums = [sum(ms for _, ms in way.timeline) for way in ways]
    for way, total in zip(ways, sums, strict=True):
        table.add(_heading(way), ms_span(total, total))
    width = max(table.bar_width(canvas), SHORTEST_BAR)
    parts = ([(*_PARTS[name], ms) for name, ms in way.timeline] for way in ways)
    bars = [lettered(each, max(sums), width) for each in parts]
    yield table.with_bars(1, bars, width)
    seen = {text for bar in bars for text, _ in bar}
    legend: Line = ()
    for name, (letter, colour) in _PARTS.items():
        if letter in seen:
            legend += (
                styled("  " if legend else "") + styled(letter, f"black on {colour}") + styled(f" {name}")
            )
    yield legend


def _notes(report: SpeedupReport) -> Iterator[str]:
    """List assumptions and omissions."""
    if not report.anchors:
        yield "With a measured step (--one-gpu-step 49ms) there are speed-ups too."
    else:
        yield (
            "Intervals hold four fifths of each range and the method's own error of "
            f"{100 * report.method_error:.0f} %."
        )
    if report.workload.launches is None:
        yield "Launching is not counted: it needs the model, not its size alone."
    yield "Reading and preparing the data is not counted: the anchor's loader must keep up with all GPUs."
