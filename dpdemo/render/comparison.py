"""A comparison of both strategies, side by side."""

from collections.abc import Iterable, Iterator
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dpdemo.bytesize import size
from dpdemo.render import markdown
from dpdemo.render.console import Canvas
from dpdemo.render.files import Drawing
from dpdemo.render.markdown import escaped
from dpdemo.reports.comparison import Comparison, Side
from dpdemo.wording import counted, ms_span, printable

Row = tuple[str, str, str]
_SIDES = ("", "DataParallel", "DistributedDataParallel")
_MOST_LISTED = 8
_ROOMY = 72
"""Under this width the long name of DDP is cut."""
_SAME = "0 %"
_COLOURS = {_SAME: "green"}


def drawing(comparison: Comparison) -> Drawing:
    """Make the drawing of a comparison."""
    draw, text = partial(_draw, comparison), partial(_markdown, comparison)
    return Drawing.of(comparison, "dpdemo compare", draw, markdown=text)


def _draw(comparison: Comparison, canvas: Canvas) -> Iterator[RenderableType]:
    yield canvas.text(title(comparison), style="bold")
    sides = _SIDES if canvas.width >= _ROOMY else ("", "DataParallel", "DDP")
    yield _table(sides, facts(comparison), canvas)
    yield Text()
    yield canvas.text(_heading(comparison), style="bold")
    yield _table(("", "differs by", "because"), gradients(comparison), canvas)
    yield Text()
    yield canvas.text(verdict(comparison), style="bold")


def _table(head: Row, rows: Iterable[Row], canvas: Canvas) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim", border_style="dim")
    for column in head:
        table.add_column(column, overflow="fold", min_width=min(len(column), canvas.width // 3))
    for name, *cells in rows:
        table.add_row(canvas.text(name), *(canvas.text(cell, style=_COLOURS.get(cell, "")) for cell in cells))
    return table


def _markdown(comparison: Comparison) -> Iterator[str]:
    yield f"### {escaped(title(comparison))}\n\n"
    yield from markdown.table(_SIDES, [list(map(escaped, row)) for row in facts(comparison)])
    yield f"\n{_heading(comparison)}:\n\n"
    checks = [list(map(escaped, row)) for row in gradients(comparison)]
    yield from markdown.table(("", "Differs by", "Because"), checks)
    yield f"\n**{verdict(comparison)}**\n"


def title(comparison: Comparison) -> str:
    """Say what is compared."""
    model = printable(comparison.config.model)
    return f"{model} over {counted(comparison.ddp.processes, 'GPU')}: one process, or one per GPU"


def facts(comparison: Comparison) -> Iterator[Row]:
    """Set the numbers of both sides beside each other."""
    dp, ddp = comparison.dp, comparison.ddp
    yield "Processes", str(dp.processes), str(ddp.processes)
    yield "Rows per device", _rows(dp), _rows(ddp)
    yield "Samples per step", str(dp.samples_per_step), str(ddp.samples_per_step)
    yield "Steps per epoch", str(dp.steps_per_epoch), str(ddp.steps_per_epoch)
    yield "Samples drawn per epoch", _drawn(dp), _drawn(ddp)
    yield "Gradient of a mean loss", "of the whole batch", "mean of the ranks' own means"
    yield "Gradient of a summed loss", "sum over the batch", f"sum over the batch ÷ {ddp.processes}"
    yield "Weight of a sample", _weight(dp), _weight(ddp)
    yield from _batchnorm(comparison)
    yield "Bytes per step: scatter", size(dp.scatter_bytes), size(ddp.scatter_bytes)
    sent = " (buffers)" if ddp.broadcast_bytes else ""
    yield "Bytes per step: broadcast", size(dp.broadcast_bytes), size(ddp.broadcast_bytes) + sent
    yield "Bytes per step: gather", size(dp.gather_bytes), size(ddp.gather_bytes)
    both = (f"{size(dp.gradient_bytes)} reduce-add", f"{size(ddp.gradient_bytes)} all-reduce (ring)")
    yield "Bytes per step: gradients", *both
    yield "Pays from a step of", _break_even(dp), _break_even(ddp)
    if dp.trace is not None:
        yield f"Sample {dp.trace.sample}", _way(dp, "device"), _way(ddp, "rank")


def _rows(side: Side) -> str:
    sizes = [rows for rows in side.rows_per_device if rows]
    num_idle = len(side.rows_per_device) - len(sizes)
    if len(set(sizes)) == 1 and len(sizes) > 1:
        listed = f"{sizes[0]} on each of {len(sizes)}"
    elif len(sizes) <= _MOST_LISTED:
        listed = ", ".join(map(str, sizes))
    else:
        listed = f"{sizes[0]} × {len(sizes) - 1}, {sizes[-1]}"
    return listed + (f" and {num_idle} idle" if num_idle else "")


def _drawn(side: Side) -> str:
    notes = [f"{side.num_repeated} of them twice"] if side.num_repeated else []
    notes += [f"{side.num_dropped} left out"] if side.num_dropped else []
    return f"{side.samples_drawn}" + (f" ({', '.join(notes)})" if notes else "")


def _weight(side: Side) -> str:
    notes = [f"{side.num_repeated} count twice"] if side.num_repeated else []
    if side.sample_weight > 1:
        notes.append(f"loss averaged inside the model: up to {side.sample_weight:.2f} times its fair share")
    return "equal" + (f" ({'; '.join(notes)})" if notes else "")


def _batchnorm(comparison: Comparison) -> Iterator[Row]:
    if not comparison.has_batchnorm:
        yield "BatchNorm", "none in this model", "none in this model"
        return
    yield "BatchNorm's statistics", "of each chunk alone", "of each rank alone (SyncBatchNorm: of all)"
    others = counted(comparison.ddp.processes - 1, "rank")
    yield "BatchNorm's running mean", "device 0's chunk", f"rank 0's, sent to {others} each step"


def _break_even(side: Side) -> str:
    if side.break_even_ms_low is None or side.break_even_ms_high is None:
        return "–"
    return f"{ms_span(side.break_even_ms_low, side.break_even_ms_high)} (pcie4)"


def _way(side: Side, place: str) -> str:
    stops = side.trace.stops if side.trace is not None else ()
    where = (f"rank {at.replica}" if place == "rank" else at.device for at in stops)
    found = (f"batch {at.batch}, {on}, row {at.row}" for at, on in zip(stops, where, strict=True))
    return "; ".join(found) or "left out"


def _heading(comparison: Comparison) -> str:
    return f"Gradients of one step over the first {comparison.samples} samples alone, against one device"


def gradients(comparison: Comparison) -> Iterator[Row]:
    """Say how far each gradient is from one device's, and why."""
    for check in comparison.gradients:
        yield check.name, _percent(check.difference), check.why


def _percent(difference: float) -> str:
    return _SAME if difference < 1e-6 else f"{100 * difference:.2g} %"


def verdict(comparison: Comparison) -> str:
    """Say in one line what changes with the strategy."""
    dp, ddp = comparison.dp, comparison.ddp
    if ddp.samples_per_step == dp.samples_per_step:
        return f"Both see {dp.samples_per_step} samples per step."
    times = ddp.samples_per_step / dp.samples_per_step
    own = max(1, round(dp.samples_per_step / ddp.processes))
    return (
        f"DDP steps on {ddp.samples_per_step} samples where DataParallel steps on {dp.samples_per_step}: "
        f"{times:.3g} times as many. With --batch-size {own} per rank they are about equal."
    )
