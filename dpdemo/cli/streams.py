"""Where output goes: results to stdout; progress, hints and errors to stderr."""

import os
import sys

import typer

from dpdemo.wording import fit, harmless

_COLOURS = {"error": typer.colors.RED, "hint": typer.colors.CYAN}


def print_hint(text: str) -> None:
    """Write a next step to stderr."""
    say("hint", text)


def say(label: str, text: str) -> None:
    """Write a line to stderr behind its label."""
    line = fit(harmless(text), sys.stderr.encoding or "utf-8")
    # echo drops the colour by itself where stderr is not a terminal; NO_COLOR is ours to honour
    colour = False if os.environ.get("NO_COLOR") else None
    typer.echo(f"{typer.style(label, fg=_COLOURS[label], bold=True)}: {line}", err=True, color=colour)
