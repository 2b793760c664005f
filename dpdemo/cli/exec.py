"""`dpdemo exec`: an unmodified program on virtual GPUs."""

from pathlib import Path
from typing import Annotated

import typer

from dpdemo.cli.capacity import GpuMemory, read_gpu_memory
from dpdemo.cli.execoutput import check_report_path, finisher
from dpdemo.cli.group import command_app
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.gpus import parse_num_virtual
from dpdemo.program import find_program

app = command_app()


@app.command(context_settings={"allow_interspersed_args": False})
def exec_(  # noqa: PLR0913, PLR0917 - an option each
    program: Annotated[
        list[str],
        typer.Argument(metavar="SCRIPT|MODULE [ARGS]...", help="What to run; ARGS are all its own."),
    ],
    gpus: Annotated[str, typer.Option("--gpus", metavar="N", help="How many virtual GPUs it finds.")],
    module: Annotated[bool, typer.Option("-m", help="Run a module by its name, as python -m does.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check every DataParallel call; see dpdemo check.")
    ] = False,
    gpu_memory: GpuMemory = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No report.")] = False,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.json", help="Save the report as JSON.")
    ] = None,
) -> None:
    """Run an unmodified program on virtual GPUs, then report how each DataParallel call was split.

    It runs as python SCRIPT ARGS would, and exits as it does; the report goes to stderr when it is over. With
    --gpu-memory an allocation past it raises torch.OutOfMemoryError, as on a GPU.
    """
    num_gpus = parse_num_virtual(gpus)
    memory = read_gpu_memory(gpu_memory, num_gpus)
    found = find_program(program[0], program[1:], is_module=module)
    finish = finisher(quiet=quiet, path=check_report_path(report), check=check)
    hide_real_gpus()
    with loading_torch():
        from dpdemo.execution import execute
        from dpdemo.preflight.watching import CallCheck

    raise SystemExit(execute(found, num_gpus, finish, CallCheck() if check else None, memory))
