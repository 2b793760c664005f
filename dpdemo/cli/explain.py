"""`dpdemo explain`: one batch through DataParallel's four steps."""

from typing import Annotated

import typer

from dpdemo.cli.group import command_app
from dpdemo.cli.options import Output, Settings, takes_config
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.streams import print_hint

app = command_app()


@app.command()
@takes_config(
    lone_number_is_count=False, output=Output(("table", "json"), (".svg", ".html", ".txt", ".json"))
)
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
        from dpdemo import walkthrough
    from dpdemo import render

    found = walkthrough.explain(settings.config, virtual=virtual)
    render.write_explanation(found, "json" if settings.format == "json" else "table", render.make_console())
    if settings.save is not None:
        render.save_explanation(found, settings.save)
        if not settings.quiet:
            print_hint(f"saved to {settings.save}")
    if found.devices.kind == "cpu" and not settings.quiet:
        print_hint("no GPU is visible; `dpdemo explain --virtual --gpus 0,1,2` takes the four steps anyway")
