"""What a sweep's picture and its Markdown say in words."""

from collections.abc import Iterator

from dpdemo.bytesize import size
from dpdemo.reports.sweep import Cell, Measure, SweepReport
from dpdemo.wording import counted, first_line, ms_span

TITLES = {
    "balance": "Balance: rows computed ÷ rows that the GPUs had time for",
    "weight": "Weight: how much more a sample of the shortest chunk counts",
    "idle": "Idle: how many GPUs get no chunk",
    "memory": "Memory: what the GPU that needs most takes for a step",
    "fits": "Fits: whether every GPU has room for a step",
    "speedup": "Speed-up: how many times as fast as one GPU with the same batch",
    "break-even": "Break-even: more GPUs pay if one GPU's step of the batch takes longer",
}
IDEAL = {
    "balance": "all GPUs equal",
    "weight": "all chunks equal",
    "idle": "no GPU idle",
    "fits": "all GPUs have room",
    "speedup": "more GPUs pay",
}


def span(numbers: tuple[int, int]) -> str:
    """Write `16–512`, or one number where both ends are the same."""
    first, last = numbers
    return str(first) if first == last else f"{first}–{last}"


def grid_of(report: SweepReport) -> str:
    """Say what was swept."""
    sizes, lines = report.batch_sizes, report.lines
    of_model = "" if report.basis is None else f"{report.basis.model}: "
    return (
        f"{of_model}batch sizes {span((sizes[0], sizes[-1]))} over "
        f"{span((lines[0].gpus, lines[-1].gpus))} GPUs, {_cells(report.num_cells)}"
    )


def _cells(number: int) -> str:
    return f"{number:,} cell{'s' * (number != 1)}"


def figure(value: float, measure: Measure) -> str:
    """Write a figure with its unit."""
    match measure:
        case "memory" | "fits":
            return size(round(value))
        case "break-even":
            return ms_span(value, value)
        case _:
            return f"{value:.3g}"


def counts(report: SweepReport) -> Iterator[str]:
    """Count the cells that are as they should be, and those with a mark."""
    totals, measure = report.totals, report.measure
    ideal = [] if measure in {"memory", "break-even"} else [(IDEAL[measure], totals.ideal)]
    marks = [("a GPU idle", totals.idle), ("a sample alone on its GPU", totals.lone)]
    if report.basis is not None:
        marks = []
    elif measure == "idle":
        marks = marks[1:]
    for what, number in (*ideal, *marks):
        yield f"{number:,} of {_cells(totals.cells)}: {what}"


def basis(report: SweepReport) -> Iterator[str]:
    """Say what predictions stand on: what was assumed, how many were made, what failed."""
    found = report.basis
    if found is None:
        return
    if found.assumed:
        yield f"Assumed: {', '.join(f'{name} {text}' for name, text in found.assumed.items())}."
    kept = f", {found.num_kept} of them in an earlier sweep" if found.num_kept else ""
    yield f"{counted(found.num_predicted, 'prediction')}{kept}."
    if found.num_between:
        yield (
            f"{counted(found.num_between, 'cell')} not predicted: between two of the same line with the same "
            "answer, where a larger batch needed more in every prediction."
        )
    if found.failure:
        yield f"Where it fails: {first_line(found.failure)}"


def best(report: SweepReport) -> str:
    """Name the best cell near the config's batch."""
    cell = report.best
    where = f"{cell.batch_size} on {counted(cell.gpus, 'GPU')}"
    near = f"near a batch of {report.near}"
    match report.measure:
        case "memory":
            return f"Least {near}: {where}{_figure_of(cell, report)}"
        case "fits":
            how = {"fits": "", "tight": ", tightly"}.get(cell.answer or "")
            return "No batch fits" if how is None else f"Fits {near}: {where}{how}"
        case "speedup" if cell.gpus == 1:
            return f"Best {near}: {where}, more do not pay"
        case "speedup" | "break-even":
            return f"Best {near}: {where}{_figure_of(cell, report)}, {cell.answer}"
        case _:
            return f"Best {near}: {where}, {_shares(cell, report)}"


def _figure_of(cell: Cell, report: SweepReport) -> str:
    if cell.value is None:
        return ""
    faster = " times as fast" if report.measure == "speedup" else ""
    return f", {figure(cell.value, report.measure)}{faster}"


def _shares(cell: Cell, report: SweepReport) -> str:
    if not cell.has_idle and cell.batch_size % cell.gpus == 0:
        return f"{cell.batch_size // cell.gpus} each"
    return f"{report.measure} {cell.value:.3g}"
