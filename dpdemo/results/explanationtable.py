"""The picture of an explanation: a table for each step, its copies, and a sentence to learn from."""

import itertools
from collections.abc import Iterator, Sequence

from dpdemo.arithmetic.tolerance import EXACT, tolerance_of
from dpdemo.config.weights import is_weighted
from dpdemo.results.batches import bracketed
from dpdemo.results.devices import Devices
from dpdemo.results.explanationdata import ExplanationData, Move, Part, Step
from dpdemo.results.splitwords import over
from dpdemo.results.table import Block, Canvas, Table, styled
from dpdemo.sizes import size
from dpdemo.wording import counted, printable

FEW = 4
"""Up to this many parts each have a line; of more, equal neighbours share one."""


def draw(explanation: ExplanationData, canvas: Canvas) -> Iterator[Block]:
    """Yield the title, the steps and the result."""
    yield canvas.text(title(explanation), style="bold")
    yield canvas.text(_setting(explanation), style="dim")
    for number, step in enumerate(explanation.steps, 1):
        yield ()
        yield canvas.text(f"{number} {step.call}", style="bold")
        yield _tensors(step, canvas)
        if step.moved:
            yield _copies(step, canvas)
        yield Table((0, "fold"), [((), canvas.text(step.lesson))])
    yield ()
    yield _result(explanation, canvas)


def title(explanation: ExplanationData) -> str:
    """Head the report: `Explained: linear, one batch of 30 over 3 virtual GPUs`."""
    batch = f"{printable(explanation.config.model)}, one batch of {explanation.batch_size}"
    return f"Explained: {batch} {over(explanation.devices, virtual=explanation.virtual)}"


def _setting(explanation: ExplanationData) -> str:
    wrapper = "WeightedDataParallel" if is_weighted(explanation.config) else "DataParallel"
    what = f"{explanation.wrapped} in {wrapper}" if explanation.wrapped else wrapper
    if explanation.devices.kind == "cpu":
        return what
    source = (
        "copies counted by the ledger"
        if explanation.bytes_from == "ledger"
        else "copies read off the tensors"
    )
    return f"{what} on {explanation.devices}, {source}"


def _tensors(step: Step, canvas: Canvas) -> Table:
    rows = Table((_LABEL, "keep", "fold", "keep", "keep"))
    for view, parts in (("in", step.given), ("out", step.made)):
        for index, cells in enumerate(_lines(parts)):
            label = styled(f"  {view}" if not index else "", "dim")
            rows.add(label, *map(canvas.text, cells))
    return rows


_LABEL = len("  copied")


def _copies(step: Step, canvas: Canvas) -> Table:
    rows = Table((_LABEL, "fold"))
    for index, (way, amount) in enumerate(_moves(step.moved)):
        rows.add(styled("" if index else "  copied", "dim"), canvas.text(f"{way}  {amount}"))
    return rows


def _lines(parts: Sequence[Part]) -> Iterator[tuple[str, str, str, str]]:
    for run in _runs(parts):
        first, last = run[0], run[-1]
        label, device = first.label, first.device
        each = ""
        if len(run) > 1:
            label = f"{label}–{last.label.rpartition(' ')[2]}"
            device = str(Devices([part.device for part in run]))
            each = " each"
        what = ", ".join(bracketed(first.shapes)) if first.shapes else counted(first.num_tensors, "tensor")
        yield label, what, device, size(first.num_bytes) + each


def _runs(parts: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    """Yield few parts one by one; of many, neighbours that differ only in their device together."""
    if len(parts) <= FEW:
        yield from ((part,) for part in parts)
        return
    for _, run in itertools.groupby(parts, key=lambda part: (part.shapes, part.num_tensors, part.num_bytes)):
        yield tuple(run)


def _moves(moves: Sequence[Move]) -> Iterator[tuple[str, str]]:
    """Write `cuda:0 → cuda:1–2` and `200 B each`: equal amounts out of, or into, one device are one line."""
    left = list(moves)
    while left:
        first = left[0]
        sent = [move for move in left if (move.source, move.num_bytes) == (first.source, first.num_bytes)]
        got = [move for move in left if (move.target, move.num_bytes) == (first.target, first.num_bytes)]
        run = sent if len(sent) >= len(got) else got
        sources = _named([move.source for move in run])
        targets = _named([move.target for move in run])
        yield f"{sources} → {targets}", size(first.num_bytes) + (" each" if len(run) > 1 else "")
        left = [move for move in left if move not in run]


def _named(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return distinct[0] if len(distinct) == 1 else str(Devices(distinct))


def _result(explanation: ExplanationData, canvas: Canvas) -> Table:
    rows = Table(("keep", "fold"))
    rows.add(styled("Result", "bold"), canvas.text(same_as_plain(explanation)))
    return rows


def same_as_plain(explanation: ExplanationData) -> str:
    """Compare the result with a plain call of the module on one device."""
    plain = explanation.plain
    call = f"module(input) on {plain.device or 'one device'}"
    if plain.difference is None:
        return f"of other shapes than {call}: what has no batch dimension is gathered as a vector"
    tolerance = tolerance_of(plain.dtype)
    if plain.difference == 0 and (tolerance == EXACT or not _is_cut(explanation)):
        return f"equal to {call}, bit for bit"
    if plain.difference == 0 or plain.difference <= tolerance.allowed(plain.scale):
        return f"equal to {call} to round-off: {plain.difference:.3g} apart at most"
    return (
        f"up to {plain.difference:.3g} from {call} (largest number {plain.scale:.3g}): "
        "chunks are treated differently from the whole batch, as by BatchNorm in training"
    )


def _is_cut(explanation: ExplanationData) -> bool:
    """Return whether kernels saw other shapes than in a plain call: some processors take others for them."""
    scatter = explanation.step("scatter")
    return scatter is not None and len(scatter.made) > 1
