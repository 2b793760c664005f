"""`dpdemo compare`: DataParallel against DistributedDataParallel for one config."""

from pathlib import Path
from typing import Annotated

import typer

from dpdemo.cli.group import command_app
from dpdemo.cli.options import PLAIN, Settings, takes_config
from dpdemo.cli.output import show
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.streams import print_hint
from dpdemo.config.ranks import TIMEOUT_SECONDS
from dpdemo.saving import check_save_path, replacing

app = command_app()


@app.command()
@takes_config(output=PLAIN, strategies=("ddp",), has_gpus_argument=True, has_weights=False)
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
    if emit is not None:
        check_save_path(emit, (".py",), "--emit", read=[settings.file] if settings.file else [])
    hide_real_gpus()
    with loading_torch():
        from dpdemo.comparing.compare import compare as compare_config
        from dpdemo.comparing.script import script

    if emit is not None:
        text = script(settings.config, emit.name)
        with replacing(emit) as file:
            file.write(text)
        if not settings.quiet:
            print_hint(f"saved to {emit}; run it with torchrun --nproc-per-node N {emit}")
    show(compare_config(settings.config, timeout), settings)
