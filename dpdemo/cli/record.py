"""`dpdemo record`: what DataParallel did, as a file that another machine can repeat."""

from pathlib import Path
from typing import Annotated

import typer

from dpdemo.cli.group import command_app
from dpdemo.cli.options import Output, Settings, takes_config
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.streams import print_hint
from dpdemo.saving import check_save_path

app = command_app()


@app.command()
@takes_config(output=Output())
def record(
    settings: Settings,
    file: Annotated[Path, typer.Argument(metavar="FILE.json", help="Where to write the recording.")],
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Record on virtual GPUs: no GPU is needed.")
    ] = False,
    batches: Annotated[int, typer.Option("--batches", metavar="N", help="Record this many batches.")] = 4,
) -> None:
    """Record what DataParallel does, forward and backward, for `dpdemo replay` to repeat.

    The file holds checksums and a few numbers of every input, chunk, output, loss, gradient and buffer.
    """
    check_save_path(file, (".json",), option="", read=[settings.file] if settings.file else [])
    if virtual:
        hide_real_gpus()
    with loading_torch():
        from dpdemo.replaying.record import record as record_batches

    found = record_batches(settings.config, virtual=virtual, batches=batches)
    found.save(file)
    if not settings.quiet:
        done = f"{len(found.batches)} of {found.epoch_batches} batches, {found.num_tensors} tensors"
        print_hint(f"recorded {done} in {file}; `dpdemo replay {file}` repeats it here or elsewhere")
