"""The words and cells of a speed-up report, without any drawing."""

from collections.abc import Iterator
from typing import get_args

from dpdemo.results.speedupdata import Estimate, PhaseName, Rate, Scaling, SpeedupData, Way
from dpdemo.sizes import size
from dpdemo.wording import ms_span

BETWEEN = "  between"
"""The name of the row below a figure that holds its interval."""
_NONE = "–"
Row = tuple[str, tuple[str, ...]]
"""The name of a fact, and a cell for each way."""


def title(report: SpeedupData) -> str:
    """Ask the question: `Does it pay? gpt2 with 8 rows on each GPU, over nvlink3`."""
    rows = report.workload.rows
    each = "" if rows is None else f" with {rows} row{'' if rows == 1 else 's'} on each GPU"
    return f"Does it pay? {report.workload.name}{each}, over {report.link.name}"


def setting(report: SpeedupData) -> str:
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
        operators = "operator" if work.launches.forward == 1 else "operators"
        parts.append(f"{work.launches.forward:,} {operators} forward, {work.launches.backward:,} backward")
    return ", ".join(parts)


def link_line(report: SpeedupData) -> str:
    """Describe the assumed rates of the link."""
    link = report.link
    if link.copy_rate == link.ring_rate:
        return f"the link carries {_rate(link.copy_rate)} one way"
    copies, ring = _rate(link.copy_rate), _rate(link.ring_rate)
    return f"{link.name}: {copies} from one GPU to another, {ring} in NCCL's ring"


def _rate(rate: Rate) -> str:
    return f"{rate.low:g} GB/s" if rate.low == rate.high else f"{rate.low:g}–{rate.high:g} GB/s"


def heading(way: Way) -> str:
    """Head the column of a way."""
    return f"{way.num_gpus} × {'DP' if way.strategy == 'DataParallel' else 'DDP'}"


def sections(ways: tuple[Way, ...]) -> Iterator[tuple[str, list[Row]]]:
    """List the tables of a report: each with its heading and its rows."""
    if copied := list(byte_rows(ways)):
        yield "What a step copies", copied
    yield "Each GPU keeps its rows", [*cost_rows(ways), *weak_rows(ways)]
    yield "The batch of one GPU is divided", list(strong_rows(ways))


def byte_rows(ways: tuple[Way, ...]) -> Iterator[Row]:
    """List what a step copies by phase, in the order of a step."""
    found: list[dict[str, int]]
    found = [{phase.name: phase.num_bytes for phase in way.weak.phases} for way in ways]
    for name in get_args(PhaseName):
        cells = tuple(size(phases[name]) if phases.get(name) else _NONE for phases in found)
        if set(cells) != {_NONE}:
            yield name, cells


def cost_rows(ways: tuple[Way, ...]) -> Iterator[Row]:
    """List how long the copies and the launches take, and from where on it pays."""
    yield "copies take", tuple(way.weak.copies_ms.span for way in ways)
    if any(way.lock_ms for way in ways):
        yield "replicas are made in", tuple(_span(way.replicate_ms) for way in ways)
        yield "forwards launched in", tuple(_span(way.lock_ms) for way in ways)
    yield "pays if longer than", tuple(_span(way.weak.break_even_ms) for way in ways)


def weak_rows(ways: tuple[Way, ...]) -> Iterator[Row]:
    """List what is gained where each GPU keeps its rows."""
    yield from _gains([way.weak for way in ways])


def strong_rows(ways: tuple[Way, ...]) -> Iterator[Row]:
    """List what is gained where one GPU's batch is divided."""
    if all(way.strong.rows is not None for way in ways):
        yield "rows on each", tuple(_rows(way.strong) for way in ways)
    yield "pays if longer than", tuple(_span(way.strong.break_even_ms) for way in ways)
    yield from _gains([way.strong for way in ways])


def _gains(scalings: list[Scaling]) -> Iterator[Row]:
    if any(scaling.speedup is None for scaling in scalings):
        return
    steps = [scaling.step_ms for scaling in scalings if scaling.step_ms]
    speedups = [scaling.speedup for scaling in scalings if scaling.speedup]
    shares = [scaling.efficiency for scaling in scalings if scaling.efficiency]
    yield "step", tuple(ms.expected for ms in steps)
    yield BETWEEN, tuple(ms.span for ms in steps)
    yield "speed-up", tuple(f"{found.point:.2f}" for found in speedups)
    yield BETWEEN, tuple(f"{found.low:.2f}–{found.high:.2f}" for found in speedups)
    yield "efficiency", tuple(f"{100 * share.point:.0f} %" for share in shares)
    yield BETWEEN, tuple(f"{100 * share.low:.0f}–{100 * share.high:.0f} %" for share in shares)
    yield "verdict", tuple(scaling.verdict or _NONE for scaling in scalings)


def timeline_heading(report: SpeedupData) -> str:
    """Head the bars of one step."""
    is_whole = any(way.weak.step_ms for way in report.ways)
    return "One step, each GPU keeping its rows" if is_whole else "The copies of one step"


def timeline_total(way: Way) -> str:
    """Write how long the parts of a way's step take together."""
    total = sum(ms for _, ms in way.timeline)
    return ms_span(total, total)


def _span(estimate: Estimate | None) -> str:
    return _NONE if estimate is None else estimate.span


def _rows(scaling: Scaling) -> str:
    rows = scaling.rows or ()
    if len(set(rows)) == 1:
        return f"{rows[0]} × {len(rows)}"
    return f"{rows[0]} × {len(rows) - 1}, {rows[-1]}"


def notes(report: SpeedupData) -> Iterator[str]:
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
