"""`dpdemo run`: an epoch under genuine DataParallel, as it was seen."""

from typing import Annotated

import typer

from dpdemo.cli.group import command_app
from dpdemo.cli.options import Settings, takes_config
from dpdemo.cli.output import show
from dpdemo.cli.progress import progress_bar
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.streams import print_error, print_hint
from dpdemo.errors import DpdemoError, RunInterrupted

app = command_app()


@app.command()
@takes_config(lone_number_is_count=False)
def run(
    settings: Settings,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Run on virtual GPUs: no GPU is needed.")
    ] = False,
) -> None:
    """Run an epoch under torch's DataParallel and show what each device saw.

    Without --gpus it takes all visible GPUs, or the CPU where there is none.
    """
    if virtual:
        hide_real_gpus()
    with loading_torch():
        from dpdemo.runner.dp import run_dp

    try:
        with progress_bar(settings) as progress:
            report = run_dp(settings.config, progress, virtual=virtual)
    except RunInterrupted as interrupt:
        show(interrupt.report, settings)
        print_error(DpdemoError("interrupted: the report holds the batches done so far"))
        raise typer.Exit(130) from None
    show(report, settings)
    if report.devices.kind == "cpu" and not settings.quiet:
        print_hint(
            "no GPU is visible, so DataParallel made one plain call a batch; "
            "`dpdemo simulate --gpus 8` previews a split"
        )
