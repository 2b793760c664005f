"""`dpdemo replay`: a recording repeated on whatever is there, and compared."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from dpdemo.cli.group import command_app
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.streams import print_hint
from dpdemo.gpus import parse_gpus

app = command_app()


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE.json", help="What `dpdemo record` wrote.")],
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Replay on virtual GPUs, even where real ones are visible.")
    ] = False,
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="Other ordinals, as many as recorded, such as 0,0,0.")
    ] = None,
    form: Annotated[
        Literal["table", "json"], typer.Option("--format", "-f", help="Form of the outcome.")
    ] = "table",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No hints.")] = False,
) -> None:
    """Repeat a recording and say identical, equal to round-off, or where it first differs.

    Takes real GPUs where there are any, else virtual ones. Exit code 1 if it differs by more than round-off.
    """
    ordinals = None if gpus is None else parse_gpus(gpus, lone_number_is_count=False)
    if virtual:
        hide_real_gpus()
    with loading_torch():
        from dpdemo import render, replayer

    found = replayer.replay(file, virtual=virtual or None, gpus=ordinals)
    if not quiet:
        print_hint(f"replayed on {'virtual ' if found.virtual else ''}{found.devices}")
    render.write_replay(found, form, render.make_console())
    if found.verdict == "different":
        raise typer.Exit(1)
