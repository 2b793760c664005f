"""`dpdemo exec`: an unmodified program on virtual GPUs."""

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from dpdemo.cli.capacity import GpuMemory, read_gpu_memory
from dpdemo.cli.check import read_codes
from dpdemo.cli.completion import cards, rules
from dpdemo.cli.execoutput import check_report_path, finisher
from dpdemo.cli.group import command_app
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.streams import print_hint
from dpdemo.config.gpus import parse_num_virtual
from dpdemo.errors import UsageError
from dpdemo.executing.hardware import Hardware
from dpdemo.executing.program import find_program

app = command_app()

DEFAULT_GPUS = 2
_INTERPRETER = re.compile(r"python[0-9.]*")


@app.command(context_settings={"allow_interspersed_args": False})
def exec_(  # noqa: PLR0913, PLR0917 - an option each
    program: Annotated[
        list[str],
        typer.Argument(metavar="SCRIPT|MODULE [ARGS]...", help="What to run; ARGS are all its own."),
    ],
    gpus: Annotated[
        str | None,
        typer.Option("--gpus", "-g", metavar="N", help="How many virtual GPUs it finds; 2 if left out."),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            "--ranks",
            "--nproc-per-node",
            metavar="N",
            min=1,
            max=128,
            help="Run it as N ranks of torch.distributed, a virtual GPU each.",
        ),
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="Run a module by its name, as python -m does.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check every DataParallel call; see dpdemo check.")
    ] = False,
    select: Annotated[
        str,
        typer.Option("--select", metavar="CODES", help="Of --check: rules to apply.", autocompletion=rules),
    ] = "",
    ignore: Annotated[
        str,
        typer.Option(
            "--ignore", metavar="CODES", help="Of --check: rules to leave out.", autocompletion=rules
        ),
    ] = "",
    gpu_memory: GpuMemory = None,
    random: Annotated[
        Literal["cuda", "cpu"],
        typer.Option("--random", help="Whose random numbers a GPU draws from a seed: CUDA's or the CPU's."),
    ] = "cuda",
    card: Annotated[
        str | None,
        typer.Option(
            "--gpu", metavar="CARD", help="What the GPUs are: A100-80GB, T4, RTX4090, …", autocompletion=cards
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No report.")] = False,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.json", help="Save the report as JSON.")
    ] = None,
) -> None:
    """Run an unmodified program on virtual GPUs, then report how each DataParallel call was split.

    It runs as python SCRIPT ARGS would, and exits as it does; the report goes to stderr when it is over. With
    --gpu-memory an allocation past it raises torch.OutOfMemoryError, as on a GPU.
    """
    num_gpus = (ranks or DEFAULT_GPUS) if gpus is None else parse_num_virtual(gpus)
    memory = read_gpu_memory(gpu_memory, num_gpus)
    words, module = _without_interpreter(program, is_module=module)
    found = find_program(words[0], words[1:], is_module=module)
    if ranks is not None:
        _refuse_beside_ranks(check=check)
        hardware = Hardware(num_gpus, memory, random, card)
        from dpdemo.executing.ranks import run_ranks

        raise SystemExit(run_ranks(found, hardware, ranks, report=check_report_path(report), quiet=quiet))
    if not quiet:
        _hint(words, gpus)
    chosen = _chosen(select, ignore, check=check)
    finish = finisher(quiet=quiet, path=check_report_path(report))
    hide_real_gpus()
    with loading_torch():
        from dpdemo.executing.callcheck import CallCheck
        from dpdemo.executing.execute import execute

    hardware = Hardware(num_gpus, memory, random, card)
    raise SystemExit(execute(found, hardware, finish, CallCheck(*chosen) if check else None))


def _refuse_beside_ranks(*, check: bool) -> None:
    if check:
        raise UsageError(
            "expected one of them, got both",
            key="check ranks",
            hint="DataParallel's calls are checked in one process: leave out --ranks",
        )


def _chosen(select: str, ignore: str, *, check: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read which rules to apply, before anything runs."""
    if not check and (select or ignore):
        raise UsageError(
            "expected `--check` beside it, got none",
            key="select" if select else "ignore",
            hint="rules are applied where calls are checked: add --check",
        )
    chosen = read_codes(select), read_codes(ignore)
    if select or ignore:
        from dpdemo.checking.registry import choose

        choose(*chosen)
    return chosen


def _without_interpreter(program: list[str], *, is_module: bool) -> tuple[list[str], bool]:
    """Read `python script.py` and `python -m pkg.mod` as the script or module: this process is the Python."""
    if is_module or len(program) < 2 or not _INTERPRETER.fullmatch(Path(program[0]).name):
        return program, is_module
    print_hint(f"`{program[0]}` is left out: the program runs in this process")
    if program[1] == "-m" and len(program) > 2:
        return program[2:], True
    return program[1:], False


def _hint(words: list[str], gpus: str | None) -> None:
    if gpus is not None:
        return
    if "--gpus" in words[1:]:
        print_hint(f"`--gpus` after {words[0]} is the program's own; dpdemo's stands before it")
    print_hint(f"{DEFAULT_GPUS} virtual GPUs, since none were named; `--gpus 4` before {words[0]} takes four")
