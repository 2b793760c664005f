"""The picture of an explanation: a table for each step, what it moved, and a sentence to learn from."""

import itertools
from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dpdemo.devices import Devices
from dpdemo.explanation import Explanation, Move, Part, Step
from dpdemo.render import lessons
from dpdemo.render.glyphs import fit, printable
from dpdemo.render.layout import GAP
from dpdemo.render.shapes import bracketed
from dpdemo.render.sizes import counted, size
from dpdemo.render.trimming import Trimmed
from dpdemo.render.words import over

FEW = 4
"""Up to this many parts each have a line; of more, equal neighbours share one."""
_ROOMY = 60
"""Under this width columns stand one blank apart."""


def print_explanation(explanation: Explanation, console: Console) -> None:
    """Print the whole picture."""
    gap = GAP if console.width >= _ROOMY else 1
    for piece in _pieces(explanation, console.encoding, gap):
        console.print(Trimmed(piece))


def _pieces(explanation: Explanation, encoding: str, gap: int) -> Iterator[RenderableType]:
    yield Text(fit(title(explanation), encoding), "bold")
    yield Text(fit(_setting(explanation), encoding), "dim")
    for number, step in enumerate(explanation.steps, 1):
        yield Text()
        yield Text(f"{number} {step.call}", "bold")
        yield _tensors(step, encoding, gap)
        if step.moved:
            yield _copies(step, encoding, gap)
        yield _indented(fit(lessons.lesson(explanation, step), encoding))
    yield Text()
    yield _proof(explanation, encoding)


def title(explanation: Explanation) -> str:
    """Say what was explained: `Explained: linear, one batch of 30 over 3 virtual GPUs`."""
    batch = f"{printable(explanation.config.model)}, one batch of {explanation.batch_size}"
    return f"Explained: {batch} {over(explanation.devices, virtual=explanation.virtual)}"


def _setting(explanation: Explanation) -> str:
    what = f"{explanation.wrapped} in DataParallel" if explanation.wrapped else "DataParallel"
    if explanation.devices.kind == "cpu":
        return what
    source = (
        "copies counted by the ledger"
        if explanation.bytes_from == "ledger"
        else "copies read off the tensors"
    )
    return f"{what} on {explanation.devices}, {source}"


def _tensors(step: Step, encoding: str, gap: int) -> Table:
    grid = Table.grid(padding=(0, gap, 0, 0), pad_edge=False)
    grid.add_column(width=_LABEL, no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    for view, parts in (("in", step.given), ("out", step.made)):
        for index, cells in enumerate(_lines(parts)):
            label = Text(f"  {view}" if not index else "", "dim")
            grid.add_row(label, *(Text(fit(cell, encoding)) for cell in cells))
    return grid


_LABEL = len("  copied")


def _copies(step: Step, encoding: str, gap: int) -> Table:
    grid = Table.grid(padding=(0, gap, 0, 0), pad_edge=False)
    grid.add_column(width=_LABEL, no_wrap=True)
    grid.add_column(overflow="fold")
    for index, (way, amount) in enumerate(_moves(step.moved)):
        grid.add_row(Text("" if index else "  copied", "dim"), Text(fit(f"{way}  {amount}", encoding)))
    return grid


def _lines(parts: Sequence[Part]) -> Iterator[tuple[str, str, str, str]]:
    for run in _runs(parts):
        first, last = run[0], run[-1]
        label, device = first.label, first.device
        each = ""
        if len(run) > 1:
            label = f"{label}–{last.label.rpartition(' ')[2]}"
            device = str(Devices.from_names([part.device for part in run]))
            each = " each"
        what = ", ".join(bracketed(first.shapes)) if first.shapes else counted(first.num_tensors, "tensor")
        yield printable(label), what, device, size(first.num_bytes) + each


def _runs(parts: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    """Give each part alone where there are few, else neighbours that are equal but for their device."""
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
    return distinct[0] if len(distinct) == 1 else str(Devices.from_names(distinct))


def _indented(text: str) -> Table:
    grid = Table.grid(padding=(0, 0, 0, GAP), pad_edge=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(text))
    return grid


def _proof(explanation: Explanation, encoding: str) -> Table:
    grid = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    style = "bold green" if explanation.proof.equals_data_parallel else "bold red"
    said = (lessons.same_as_data_parallel(explanation), lessons.same_as_plain(explanation))
    for label, text in zip((Text("Result", style), Text()), said, strict=True):
        grid.add_row(label, Text(fit(text, encoding)))
    return grid
