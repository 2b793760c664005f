"""`dpdemo replay`: a recording repeated on whatever is there, and compared."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from dpdemo.cli.group import command_app
from dpdemo.cli.output import save_and_write
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.streams import print_hint
from dpdemo.config.gpus import parse_gpus
from dpdemo.wording import show_key

app = command_app()


@app.command()
def replay(  # noqa: PLR0913, PLR0917 - an option each
    file: Annotated[Path, typer.Argument(metavar="FILE.json", help="What `dpdemo record` wrote.")],
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Replay on virtual GPUs, even where real ones are visible.")
    ] = False,
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="Other ordinals, as many as recorded, such as 0,0,0.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the code that it names, if that is not dpdemo's own.")
    ] = False,
    form: Annotated[
        Literal["table", "json", "csv", "markdown"],
        typer.Option("--format", "-f", help="Form of the outcome."),
    ] = "table",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No hints.")] = False,
) -> None:
    """Repeat a recording and say identical, equal to round-off, or where it first differs.

    Takes real GPUs where there are any, else virtual ones. Exit code 1 if it differs by more than round-off.
    """
    ordinals = None if gpus is None else parse_gpus(gpus)
    if trust:
        from dpdemo.reports.recording import load_recording

        print_hint(f"imports and runs the model {show_key(str(load_recording(file).config.get('model')))}")
    if virtual:
        hide_real_gpus()
    with loading_torch():
        from dpdemo.replaying.replay import replay as replay_recording

    found = replay_recording(file, virtual=virtual or None, gpus=ordinals, trust=trust)
    if not quiet:
        print_hint(f"replayed on {'virtual ' if found.virtual else ''}{found.devices}")
    save_and_write(found, form, (), quiet=quiet)
    if found.verdict == "different":
        raise typer.Exit(1)
