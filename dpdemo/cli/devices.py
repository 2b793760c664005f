"""`dpdemo devices`: what torch sees, and whether DataParallel would call it balanced."""

from typing import Annotated, Literal

import typer

from dpdemo.cli.group import command_app
from dpdemo.cli.output import save_and_write
from dpdemo.cli.startup import loading_torch
from dpdemo.cli.streams import print_hint

app = command_app()


@app.command()
def devices(
    form: Annotated[
        Literal["table", "json", "csv", "markdown"], typer.Option("--format", "-f", help="Form of the list.")
    ] = "table",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No hints.")] = False,
) -> None:
    """List the visible GPUs and apply DataParallel's balance rule.

    DataParallel warns when one GPU has under 75 % of another's memory or multiprocessors.
    """
    with loading_torch():
        from dpdemo.reports.visible import VisibleDevices
        from dpdemo.running.visible import visible_devices, why_no_gpu

    found = VisibleDevices(tuple(visible_devices()))
    save_and_write(found, form, (), quiet=quiet)
    if not found.devices and not quiet:
        print_hint(f"{why_no_gpu()}; `dpdemo simulate --gpus 8` previews any number of GPUs")
