"""`dpdemo run`: an epoch under genuine DataParallel, as hooks observed it."""

from dataclasses import replace
from importlib import import_module
from typing import Annotated

import typer

from dpdemo.cli import options as o
from dpdemo.cli.edge import print_error, print_hint, print_report
from dpdemo.cli.settings import read_settings, without_effect
from dpdemo.cli.startup import loading_torch, progress_bar
from dpdemo.config.ranks import TIMEOUT_SECONDS
from dpdemo.errors import DpdemoError
from dpdemo.results.split import SplitReport

EXAMPLES = (
    "run --virtual --gpus 3",
    "run --virtual --gpus 4 --model model.py:Net --batch-size 64",
    "run --strategy ddp --set processes=3",
)
_STRATEGY_ROOMS = {"dp": "dpdemo.epochs.dp", "ddp": "dpdemo.epochs.ddp.launch"}
_TIMEOUT = "How long a rank of ddp waits for the others."
Timeout = Annotated[float, o.option("--timeout SECONDS", o.GPUS, _TIMEOUT)]


def command(
    ctx: typer.Context,
    gpus_argument: o.GpusArgument = None,
    gpus: o.Gpus = None,
    virtual: o.Virtual = False,
    strategy: o.Strategy = None,
    timeout: Timeout = TIMEOUT_SECONDS,
    batch_size: o.BatchSize = None,
    data_size: o.DataSize = None,
    drop_last: o.DropLast = None,
    model: o.Model = None,
    config: o.ConfigFile = None,
    set_keys: o.SetKeys = None,
    form: o.SplitForm = "table",
    save: o.Save = None,
    verbose: o.Verbose = False,
    quiet: o.Quiet = False,
) -> None:
    """Run an epoch under torch's DataParallel or DDP, and show what hooks observed.

    Without --gpus it takes all visible GPUs, or the CPU if there is none. With --strategy ddp it starts a
    process for each GPU, or `--set processes=N`; under torchrun it is one of the ranks.
    """
    checked = read_settings(ctx, strategies=("dp", "ddp"))
    if checked.strategy != "ddp":
        hint = "DataParallel has one process, which waits for no other: leave it out"
        without_effect(ctx, ("timeout",), "`--strategy ddp` beside it", "none", hint)
    with loading_torch(hides_gpus=virtual):
        from dpdemo.epochs import run as run_config
        from dpdemo.epochs.ddp.world import speaks
        from dpdemo.epochs.interrupts import RunInterrupted

        import_module(_STRATEGY_ROOMS[checked.strategy])  # what `run` needs

    try:
        with progress_bar(quiet=quiet) as progress:
            report = run_config(checked, virtual=virtual, progress=progress, timeout=timeout)
    except RunInterrupted as interrupt:
        print_report(replace(interrupt.report, verbose=verbose), form, save, quiet=quiet)
        print_error(DpdemoError("interrupted: the report holds the batches done so far"))
        raise typer.Exit(130) from None
    if not speaks(checked):
        return
    print_report(replace(report, verbose=verbose), form, save, quiet=quiet)
    if not quiet:
        _hint(report, is_named=checked.gpus is not None or checked.processes is not None)


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
