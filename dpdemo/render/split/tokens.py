"""The tables of tokens: a line for each device of a batch or of the epoch; the bars are tokens."""

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dpdemo.render.console import ASCII_HEAD, GAP, Canvas, grid
from dpdemo.render.layout import SHORTEST_BAR
from dpdemo.render.markdown import escaped, table
from dpdemo.render.split.bars import IDLE, SHORT, bar
from dpdemo.results.devicetokens import Line, percent
from dpdemo.results.devicetokens import Table as Lines
from dpdemo.results.tokens import SeenTokens, Tokens

_HEAD = ("device", "rows", "tokens", "padded", "share")


def token_tables(tokens: Tokens, canvas: Canvas, *, verbose: bool) -> Iterator[RenderableType]:
    """Yield each table under its heading."""
    for lines in tokens.tables(verbose=verbose):
        yield Text()
        yield from _headed(lines, canvas, "bold")


def seen_tokens(tokens: SeenTokens, canvas: Canvas) -> Iterator[RenderableType]:
    """Yield the table of a program's calls, and what it comes to."""
    yield from _headed(tokens.table(), canvas, "dim")
    sums = grid("keep", "fold")
    for name, number, meaning in tokens.facts():
        sums.add_row(name, canvas.text(joined(number, meaning)))
    for warning in tokens.warnings():
        sums.add_row(Text("Warning", "bold yellow"), canvas.text(warning))
    yield sums


def token_markdown(tokens: Tokens, *, verbose: bool) -> Iterator[str]:
    """Yield each table as Markdown under its heading."""
    for index, lines in enumerate(tokens.tables(verbose=verbose)):
        yield "\n" if index else ""
        yield from _headed_markdown(lines)


def seen_markdown(tokens: SeenTokens) -> Iterator[str]:
    """Yield the table of a program's calls as Markdown, and what it comes to."""
    yield from _headed_markdown(tokens.table())
    yield "\n"
    for name, number, meaning in tokens.facts():
        yield f"- {name}: {escaped(joined(number, meaning).removeprefix(': '))}\n"
    for warning in tokens.warnings():
        yield f"- Warning: {escaped(warning)}\n"


def joined(number: str, meaning: str) -> str:
    """Join a fact's number and its meaning, which may begin with a colon."""
    return f"{number}{'' if meaning.startswith(':') or not number else ' '}{meaning}"


def _headed(lines: Lines, canvas: Canvas, style: str) -> Iterator[RenderableType]:
    yield canvas.text(lines.heading, style=style)
    yield _drawn(lines, canvas)
    if lines.num_left_out:
        yield canvas.text(_left_out(lines))


def _headed_markdown(lines: Lines) -> Iterator[str]:
    yield f"{escaped(lines.heading)}\n\n"
    rows = [[escaped(cell) for cell in _cells(line)] for line in lines.lines]
    yield from table(_HEAD, rows, right={1, 2, 3, 4})
    if lines.num_left_out:
        yield f"\n{escaped(_left_out(lines))}\n"


def _left_out(lines: Lines) -> str:
    return f"... and {lines.num_left_out:,} more; --format csv lists all"


def _cells(line: Line) -> tuple[str, ...]:
    rows = f"{line.rows:,}" if line.rows else "idle"
    return (line.label, rows, f"{line.tokens:,}", f"{line.padded:,}", percent(line.share))


def _drawn(lines: Lines, canvas: Canvas) -> Table:
    cells = [tuple(map(canvas.fit, _cells(line))) for line in lines.lines]
    widths = [max(map(cell_len, column)) for column in zip(_HEAD, *cells, strict=True)]
    room = canvas.width - sum(widths) - GAP * len(widths)
    width = room if room >= SHORTEST_BAR else 0
    shown = _empty(widths, width, canvas)
    for line, row in zip(lines.lines, cells, strict=True):
        style = IDLE if not line.rows else SHORT if line.cost < line.most else ""
        bars = [bar(line.cost, max(line.most, 1), width, ascii_only=canvas.is_ascii)] if width else []
        shown.add_row(*(Text(cell, style) for cell in row), *bars)
    return shown


def _empty(widths: Sequence[int], bar_width: int, canvas: Canvas) -> Table:
    box = ASCII_HEAD if canvas.is_ascii else SIMPLE_HEAD
    drawn = Table(
        box=box,
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
        header_style="dim",
        border_style="dim",
    )
    for index, (name, width) in enumerate(zip(_HEAD, widths, strict=True)):
        drawn.add_column(Text(name), width=width, justify="right" if index else "left", overflow="fold")
    if bar_width:
        drawn.add_column(Text(), width=bar_width)
    return drawn
