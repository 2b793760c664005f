"""The tables of tokens: a line for each device of a batch or of the epoch; the bars are tokens."""

from collections.abc import Iterator

from dpdemo.results.bars import IDLE, SHORT, bar
from dpdemo.results.devicetokens import Line, Lines
from dpdemo.results.table import GAP, Block, Canvas, Column, Table, facts, right, styled, text_width
from dpdemo.results.tokens import SeenTokens, Tokens
from dpdemo.wording import percent

_HEAD = ("device", "rows", "tokens", "padded", "share")
_MOST_LINES = 32


def token_tables(tokens: Tokens, canvas: Canvas, *, verbose: bool) -> Iterator[Block]:
    """Yield each table under its heading."""
    for heading, lines in tokens.tables(verbose=verbose):
        yield ()
        yield from _headed(heading, lines, canvas, "bold")


def seen_tokens(tokens: SeenTokens, canvas: Canvas) -> Iterator[Block]:
    """Yield the table of a program's calls, and what it comes to."""
    yield from _headed(tokens.heading, tokens.all_lines(), canvas, "dim")
    yield facts(canvas, tokens.facts(), [("Warning", warning) for warning in tokens.warnings()])


def _headed(heading: str, lines: Lines, canvas: Canvas, style: str) -> Iterator[Block]:
    yield canvas.text(heading, style=style)
    yield _drawn(lines[:_MOST_LINES], canvas)
    if len(lines) > _MOST_LINES:
        yield canvas.text(f"... and {len(lines) - _MOST_LINES:,} more; --format csv lists all")


def _cells(line: Line) -> tuple[str, ...]:
    rows = f"{line.rows:,}" if line.rows else "idle"
    return (line.label, rows, f"{line.tokens:,}", f"{line.padded:,}", percent(line.share))


def _drawn(lines: Lines, canvas: Canvas) -> Table:
    cells = [tuple(map(canvas.fit, _cells(line))) for line in lines]
    widths = [max(map(text_width, column)) for column in zip(_HEAD, *cells, strict=True)]
    room = canvas.width - sum(widths) - GAP * len(widths)
    width = canvas.bar_width(room)
    bars: list[Column] = [width] if width else []
    head = tuple(styled(name, "dim") for name in (*_HEAD, *[""] * len(bars)))
    shown = Table(("keep", *right(4), *bars), head=head, has_rule=True)
    for line, row in zip(lines, cells, strict=True):
        style = IDLE if not line.rows else SHORT if line.cost < line.most else ""
        drawn = [bar(line.cost, max(line.most, 1), width, canvas)] if width else []
        shown.add(*(styled(cell, style) for cell in row), *drawn)
    return shown
