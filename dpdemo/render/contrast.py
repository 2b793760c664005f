"""A comparison of both strategies: side by side as a table, as Markdown, or as JSON."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dpdemo.contrast import Comparison
from dpdemo.render.contrastjson import comparison_json
from dpdemo.render.glyphs import fit

if TYPE_CHECKING:
    from rich.console import Console


Row = tuple[str, str, str]


def write(comparison: Comparison, form: str, console: "Console") -> None:
    """Write a comparison to a console as `table`, `markdown` or `json`."""
    match form:
        case "table":
            _print_table(comparison, console)
        case "markdown":
            console.file.writelines(fit(piece, console.encoding) for piece in _markdown(comparison))
        case _:
            console.file.write(comparison_json(comparison))


def _print_table(comparison: Comparison, console: "Console") -> None:
    from rich.text import Text

    facts = [(fact.name, fact.dp, fact.ddp) for fact in comparison.facts]
    checks = [(check.name, _percent(check.difference), check.why) for check in comparison.gradients]
    console.print(Text(fit(comparison.title, console.encoding), "bold"))
    _print_rows(("", "DataParallel", "DistributedDataParallel"), facts, console)
    console.print()
    console.print(Text(_heading(comparison), "bold"))
    _print_rows(("", "differs by", "because"), checks, console)


def _print_rows(head: Row, rows: Iterable[Row], console: "Console") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from dpdemo.render.trimming import Trimmed

    table = Table(*head, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(fit(cell, console.encoding)) for cell in row))
    console.print(Trimmed(table))


def _heading(comparison: Comparison) -> str:
    return f"Gradients of one step over the first {comparison.samples} samples, against one device"


def _percent(difference: float) -> str:
    return "0 %" if difference < 1e-6 else f"{100 * difference:.2g} %"


def _markdown(comparison: Comparison) -> Iterator[str]:
    yield f"### {comparison.title}\n\n| | DataParallel | DistributedDataParallel |\n| --- | --- | --- |\n"
    for fact in comparison.facts:
        yield f"| {fact.name} | {fact.dp} | {fact.ddp} |\n"
    yield f"\n{_heading(comparison)}:\n\n| | Differs by | Because |\n| --- | --- | --- |\n"
    for check in comparison.gradients:
        yield f"| {check.name} | {_percent(check.difference)} | {check.why} |\n"
