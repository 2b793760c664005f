"""`dpdemo run`: an epoch under genuine DataParallel, as it was seen."""

from importlib import import_module
from typing import Annotated

import typer

from dpdemo.cli.edge import print_error
from dpdemo.cli.group import command_app
from dpdemo.cli.options import Settings, takes_config
from dpdemo.cli.output import show
from dpdemo.cli.progress import progress_bar
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.streams import print_hint
from dpdemo.config.ranks import TIMEOUT_SECONDS
from dpdemo.errors import DpdemoError
from dpdemo.reports.split import SplitReport

_STRATEGY_ROOMS = {"dp": "dpdemo.running.dp", "ddp": "dpdemo.running.ddp.launch"}

app = command_app()


@app.command()
@takes_config(strategies=("dp", "ddp"), has_gpus_argument=True)
def run(
    settings: Settings,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Run on virtual GPUs: no GPU is needed.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="How long a rank of ddp waits for the others."),
    ] = TIMEOUT_SECONDS,
) -> None:
    """Run an epoch under torch's DataParallel or DistributedDataParallel, and show what was seen.

    Without --gpus it takes all visible GPUs, or the CPU where there is none. With --strategy ddp it starts a
    process for each GPU, or as many as `--set processes=N` says; under torchrun it is one rank of those.
    """
    if virtual:
        hide_real_gpus()
    with loading_torch():
        from dpdemo.running import run as run_config
        from dpdemo.running.ddp.world import speaks
        from dpdemo.running.interrupts import RunInterrupted
        from dpdemo.running.visible import warn_of_balance

        import_module(_STRATEGY_ROOMS[settings.config.strategy])  # what `run` needs

    try:
        with progress_bar(quiet=settings.quiet) as progress:
            report = run_config(settings.config, virtual=virtual, progress=progress, timeout=timeout)
    except RunInterrupted as interrupt:
        show(interrupt.report, settings, verbose=settings.verbose)
        print_error(DpdemoError("interrupted: the report holds the batches done so far"))
        raise typer.Exit(130) from None
    if not speaks(settings.config):
        return
    show(report, settings, verbose=settings.verbose)
    if not settings.quiet:
        _hint(report, is_named=settings.config.gpus is not None)
        warning = None if virtual or settings.config.strategy == "ddp" else warn_of_balance(report.devices)
        if warning is not None:
            print_hint(warning)


def _hint(report: SplitReport, *, is_named: bool) -> None:
    if report.virtual and not is_named:
        print_hint(f"{len(report.devices)} virtual GPUs, since none were named; try --gpus 3")
    elif report.distribution is not None:
        if report.distribution.world_size == 1:
            print_hint("one process, so nothing is distributed; try --set processes=3")
    elif report.devices.kind == "cpu":
        print_hint(
            "no GPU is visible, so DataParallel made one plain call per batch; "
            "`dpdemo simulate --gpus 8` previews a split, "
            "`dpdemo run --virtual --gpus 0,1,2` runs one"
        )
