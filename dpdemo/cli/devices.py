"""`dpdemo devices`: what torch sees, and whether DataParallel would call it balanced."""

from typing import Annotated, Literal

import typer

from dpdemo.balance import find_imbalance
from dpdemo.cli.group import command_app
from dpdemo.cli.streams import print_hint

app = command_app()


@app.command()
def devices(
    form: Annotated[
        Literal["table", "json"], typer.Option("--format", "-f", help="Form of the list.")
    ] = "table",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No hints.")] = False,
) -> None:
    """List the visible GPUs and apply DataParallel's balance rule.

    DataParallel warns when one GPU has under 75 % of another's memory or multiprocessors.
    """
    from dpdemo.render import make_console
    from dpdemo.render.devices import write_devices
    from dpdemo.runner.visible import visible_devices, why_no_gpu

    found = visible_devices()
    write_devices(found, find_imbalance(found), form, make_console())
    if not found and not quiet:
        print_hint(f"{why_no_gpu()}; `dpdemo simulate --gpus 8` previews any number of GPUs")
