"""`dpdemo compare`: DataParallel against DistributedDataParallel for one config."""

from pathlib import Path
from typing import Annotated

import typer

from dpdemo.cli.group import command_app
from dpdemo.cli.options import Output, Settings, takes_config
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.streams import print_hint
from dpdemo.strategy import TIMEOUT_SECONDS

app = command_app()


@app.command()
@takes_config(lone_number_is_count=True, output=Output(("table", "json", "markdown")), strategies=("ddp",))
def compare(
    settings: Settings,
    emit: Annotated[
        Path | None,
        typer.Option("--emit", metavar="FILE.py", help="Write a torchrun script for the same config."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long a rank waits for the others.")
    ] = TIMEOUT_SECONDS,
) -> None:
    """Compare DataParallel with DistributedDataParallel for one config.

    The gradients of both are really computed on the CPU: over virtual GPUs, and in processes of torch's own
    launcher. Without --gpus it compares four GPUs.
    """
    from dpdemo.render import contrast, make_console

    hide_real_gpus()
    with loading_torch():
        from dpdemo.comparison import compare as compare_config
        from dpdemo.emit import write_script

    if emit is not None:
        write_script(settings.config, emit)
        if not settings.quiet:
            print_hint(f"saved to {emit}; run it with torchrun --nproc-per-node N {emit}")
    contrast.write(compare_config(settings.config, timeout), settings.format, make_console())
