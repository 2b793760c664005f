"""Where output goes: results to stdout; progress, hints and errors to stderr."""

import sys

import typer

from dpdemo.errors import DpdemoError
from dpdemo.wording import fit, harmless


def print_error(error: DpdemoError) -> None:
    """Write an error and its next step to stderr."""
    _say("error", error.message, typer.colors.RED)
    if error.hint:
        print_hint(error.hint)


def print_hint(text: str) -> None:
    """Write a next step to stderr."""
    _say("hint", text, typer.colors.CYAN)


def _say(label: str, text: str, colour: str) -> None:
    # echo drops the colour by itself where stderr is not a terminal; NO_COLOR is ours to honour
    said = fit(harmless(text), sys.stderr.encoding or "utf-8")
    typer.echo(f"{typer.style(label, fg=colour, bold=True)}: {said}", err=True, color=_no_colour())


def _no_colour() -> bool | None:
    import os

    return False if os.environ.get("NO_COLOR") else None
