"""`dpdemo explain`: one batch through DataParallel's four steps."""

from typing import Annotated

import typer

from dpdemo.cli.group import command_app
from dpdemo.cli.options import PLAIN, Settings, takes_config
from dpdemo.cli.output import show
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.streams import print_hint

app = command_app()


@app.command()
@takes_config(output=PLAIN, has_gpus_argument=True)
def explain(
    settings: Settings,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Explain on virtual GPUs: no GPU is needed.")
    ] = False,
) -> None:
    """Take one batch through scatter, replicate, parallel_apply and gather, step by step.

    Shows shapes, devices and bytes copied, all of them observed, and proves that the steps are DataParallel.
    """
    if virtual:
        hide_real_gpus()
    with loading_torch():
        from dpdemo.explaining import walkthrough

    found = walkthrough.explain(settings.config, virtual=virtual)
    show(found, settings)
    if found.devices.kind == "cpu" and not settings.quiet:
        print_hint("no GPU is visible; `dpdemo explain --virtual --gpus 0,1,2` takes the four steps anyway")
