"""The tables of tokens: a line for each device of a batch or of the epoch; the bars are tokens."""

from collections.abc import Iterator

from dpdemo.results.bars import IDLE, SHORT, bar
from dpdemo.results.devicetokens import Line
from dpdemo.results.devicetokens import Table as Lines
from dpdemo.results.table import GAP, Block, Canvas, Column, Table, right, styled, text_width
from dpdemo.results.tokens import SeenTokens, Tokens
from dpdemo.wording import percent

_HEAD = ("device", "rows", "tokens", "padded", "share")


def token_tables(tokens: Tokens, canvas: Canvas, *, verbose: bool) -> Iterator[Block]:
    """Yield each table under its heading."""
    for lines in tokens.tables(verbose=verbose):
        yield ()
        yield from _headed(lines, canvas, "bold")


def seen_tokens(tokens: SeenTokens, canvas: Canvas) -> Iterator[Block]:
    """Yield the table of a program's calls, and what it comes to."""
    yield from _headed(tokens.table(), canvas, "dim")
    sums = Table(("keep", "fold"))
    for name, number, meaning in tokens.facts():
        sums.add(styled(name), canvas.text(joined(number, meaning)))
    for warning in tokens.warnings():
        sums.add(styled("Warning", "bold yellow"), canvas.text(warning))
    yield sums


def joined(number: str, meaning: str) -> str:
    """Join a fact's number and its meaning, which may begin with a colon."""
    return f"{number}{'' if meaning.startswith(':') or not number else ' '}{meaning}"


def _headed(lines: Lines, canvas: Canvas, style: str) -> Iterator[Block]:
    yield canvas.text(lines.heading, style=style)
    yield _drawn(lines, canvas)
    if lines.num_left_out:
        yield canvas.text(_left_out(lines))


def _left_out(lines: Lines) -> str:
    return f"... and {lines.num_left_out:,} more; --format csv lists all"


def _cells(line: Line) -> tuple[str, ...]:
    rows = f"{line.rows:,}" if line.rows else "idle"
    return (line.label, rows, f"{line.tokens:,}", f"{line.padded:,}", percent(line.share))


def _drawn(lines: Lines, canvas: Canvas) -> Table:
    cells = [tuple(map(canvas.fit, _cells(line))) for line in lines.lines]
    widths = [max(map(text_width, column)) for column in zip(_HEAD, *cells, strict=True)]
    room = canvas.width - sum(widths) - GAP * len(widths)
    width = canvas.bar_width(room)
    bars: list[Column] = [width] if width else []
    head = tuple(styled(name, "dim") for name in (*_HEAD, *[""] * len(bars)))
    shown = Table(("keep", *right(4), *bars), head=head, has_rule=True)
    for line, row in zip(lines.lines, cells, strict=True):
        style = IDLE if not line.rows else SHORT if line.cost < line.most else ""
        drawn = [bar(line.cost, max(line.most, 1), width, canvas)] if width else []
        shown.add(*(styled(cell, style) for cell in row), *drawn)
    return shown
