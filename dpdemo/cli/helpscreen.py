"""The help on a terminal: a frame around each panel of options, then the examples."""

import io
import os
from collections.abc import Iterable

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dpdemo.render.console import OFF_THE_PAGE, on_stream


def drawn(sections: Iterable[tuple[str, list[tuple[str, str]]]], examples: Iterable[str]) -> str:
    """Draw the panels and examples as text with a terminal's colours.

    Args:
        sections: the title of each panel, and its lines: what one types, and what it means.
        examples: command lines without the name of the program.

    """
    terminal = on_stream(stderr=False)
    file = io.StringIO()
    console = Console(
        **OFF_THE_PAGE,
        file=file,
        width=terminal.width,
        force_terminal=True,
        no_color="NO_COLOR" in os.environ,
        highlight=False,
        legacy_windows=False,
    )
    for title, lines in sections:
        console.print(_panel(title, lines))
    if examples:
        console.print(Text("Examples", "bold"))
        for example in examples:
            console.print(Text.assemble("  dpdemo ", (example, "cyan")), soft_wrap=True)
    return file.getvalue()


def _panel(title: str, lines: list[tuple[str, str]]) -> Panel:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="cyan", ratio=2)
    table.add_column(ratio=3)
    for words, meaning in lines:
        text, bracket, default = meaning.rpartition("[default: ")
        table.add_row(
            Text(words), Text.assemble(text, (bracket + default, "dim")) if bracket else Text(meaning)
        )
    return Panel(table, title=title, title_align="left", border_style="dim")
