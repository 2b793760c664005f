"""Markdown from the blocks that a terminal shows, without their bars.

The first bold line is the heading. A table with a head is a table, one without is a list if it has two
columns, and `Uncut` lines are a block of code.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from dpdemo.results.table import Block, Canvas, Line, Table, Uncut, plain, wrap
from dpdemo.wording import printable

CANVAS = Canvas(10**6, draws_bars=False)
_SIGNS = re.compile(r"([\\`*_<|]|\](?=[(\[:])|^[#>]|^[-+](?= ))")


def markdown_pieces(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield blocks as Markdown, with an empty line between them."""
    before, code = "", ""
    is_headed = False
    for block in blocks:
        if not block:
            continue
        if isinstance(block, Uncut):
            code += plain(block).replace("```", "'''") + "\n"  # a fence would end the block
            continue
        if code:
            yield before + _fence(code)
            before, code = "\n", ""
        yield before
        before = "\n"
        if isinstance(block, Table):
            yield from _table(block)
        elif not is_headed and _is_bold(block[0]):
            is_headed = True
            yield f"### {escaped(plain(block))}\n"
        else:
            yield _paragraphs(block)
    if code:
        yield before + _fence(code)


def _paragraphs(line: Line) -> str:
    text = _text(line, "\n").strip().replace("\n\n", "\0")
    return text.replace("\n", "  \n").replace("\0", "\n\n") + "\n"


def _fence(code: str) -> str:
    return f"```text\n{code}```\n"


def escaped(text: str) -> str:
    """Write text so that Markdown shows it as it is, on one line."""
    return _SIGNS.sub(r"\\\1", printable(text))


def _text(line: Line, newline: str) -> str:
    """Write a line with its bold pieces marked."""
    return newline.join("".join(_pieces(part)) for part in wrap(line, CANVAS.width))


def _pieces(line: Line) -> Iterator[str]:
    for is_bold, pieces in groupby(line, key=_is_bold):
        text = "".join(piece for piece, _ in pieces)
        bare = text.strip()
        yield text.replace(bare, f"**{escaped(bare)}**") if is_bold and bare else escaped(text)


def _is_bold(piece: tuple[str, str]) -> bool:
    return "bold" in piece[1].split()


def _table(table: Table) -> Iterator[str]:
    """Yield a table line by line, padded so that the source reads well too."""
    rows = [[_text(cell, "<br>").strip() for cell in row] for row in table.rows]
    if not table.head and len(table.columns) <= 2:
        yield from (f"- {': '.join(filter(None, row))}\n" for row in rows)
        return
    head = [escaped(name.replace("\n", " ").strip()) for name in table.head] or [""] * len(rows[0])
    right = [place for place, column in enumerate(table.columns) if column == "right"]
    widths = [max(2, *map(len, column)) for column in zip(head, *rows, strict=True)]  # `:` alone is no rule
    rule = ["-" * (width - 1) + ":-"[index not in right] for index, width in enumerate(widths)]
    for cells in (head, rule, *rows):
        padded = (
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        yield f"| {' | '.join(padded)} |\n"
