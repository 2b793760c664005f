"""`dpdemo doctor`: one screen about a model or a program; `dpdemo TARGET` alone is the same."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dpdemo.cli.capacity import GpuMemory, read_gpu_memory
from dpdemo.cli.check import failing_apart
from dpdemo.cli.completion import cards, links, models
from dpdemo.cli.group import command_app
from dpdemo.cli.help import Command
from dpdemo.cli.output import save_and_write
from dpdemo.cli.progress import status_line
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.config.fields import INT64_MAX
from dpdemo.config.gpus import card_named, parse_num_virtual
from dpdemo.config.targets import looks_like_script
from dpdemo.errors import UsageError
from dpdemo.reports.diagnosis import Diagnosis
from dpdemo.saving import check_save_path, endings
from dpdemo.timing.anchors import read_anchor
from dpdemo.timing.links import find_link

app = command_app()

DEFAULT_GPUS = 4
DEFAULT_LINK = "pcie4"
_FORMS = ("table", "json", "csv", "markdown")
_HELP = {
    "target": "model.py:Net, model.py or pkg.mod:Net, a built-in model, or a script with its ARGS.",
    "gpus": "How many GPUs. [default: 4]",
    "input": "[NAME=]SHAPE[:TYPE[<N]], once for each argument; worked out from the first layer if left out.",
    "batch": "The batch, if no input says it.",
    "gpu": "The card that the GPUs are: A100-80GB, T4, RTX3090.",
    "link": "How the GPUs are joined, as for dpdemo speedup. [default: pcie4]",
    "step": "A measured step of one GPU: 49ms, 49ms@8. With it, doctor says whether more GPUs pay.",
    "save": "Save it, too, several times if need be: .svg .html .txt .json .csv .md",
}
_TARGET = typer.Argument(metavar="TARGET [ARGS]...", help=_HELP["target"], autocompletion=models)


@dataclass(frozen=True)
class Gpus:
    """The virtual GPUs of a script: how many, what each holds, which card they are."""

    number: int
    memory: list[int] | None
    card: str | None


class _Doctor(Command):
    """Takes options on both sides of a model; behind a script they are the script's own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options as far as they are doctor's."""
        ctx.allow_interspersed_args = not any(_is_script(word) for word in args)
        return super().parse_args(ctx, args)


def _is_script(word: str) -> bool:
    """Return whether a word names a program, or would if it were there: what follows is not ours."""
    return looks_like_script(word) or (word.endswith(".py") and not Path(word).is_file())


@app.command(cls=_Doctor)
def doctor(  # noqa: PLR0913, PLR0917 - an option each
    target: Annotated[list[str], _TARGET],
    gpus: Annotated[str | None, typer.Option("--gpus", "-g", metavar="N", help=_HELP["gpus"])] = None,
    input: Annotated[list[str] | None, typer.Option("--input", metavar="SPEC", help=_HELP["input"])] = None,  # noqa: A002
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", metavar="N", min=1, max=INT64_MAX, help=_HELP["batch"])
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="CARD", help=_HELP["gpu"], autocompletion=cards)
    ] = None,
    gpu_memory: GpuMemory = None,
    link: Annotated[
        str | None, typer.Option("--link", metavar="NAME", help=_HELP["link"], autocompletion=links)
    ] = None,
    one_gpu_step: Annotated[
        list[str] | None, typer.Option("--one-gpu-step", metavar="TIME[@ROWS]", help=_HELP["step"])
    ] = None,
    form: Annotated[
        Literal["table", "json", "csv", "markdown"],
        typer.Option("--format", "-f", help="Form of the answers."),
    ] = "table",
    save: Annotated[list[Path] | None, typer.Option("--save", metavar="FILE", help=_HELP["save"])] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No hints, no progress.")] = False,
) -> None:
    """Answer on one screen: is the split even, is it right, does it fit, does it pay, what next.

    Options stand before a script, whose ARGS are its own, and on either side of a model. Exits with 1 where
    something is wrong or does not fit. A script is run as dpdemo exec --check does: the answers go to stderr
    when it is over, and the exit code is its own.
    """
    num_gpus = DEFAULT_GPUS if gpus is None else parse_num_virtual(gpus)
    memory = read_gpu_memory(gpu_memory, num_gpus)
    if gpu is not None:
        card_named(gpu)
    if link is not None:
        find_link(link)
    for text in one_gpu_step or ():
        read_anchor(text)
    for path in save or ():
        check_save_path(path, endings(_FORMS))
    name, arguments = target[0], target[1:]
    if looks_like_script(name):
        _refuse_for_script(
            {
                "input": input,
                "batch_size": batch_size,
                "link": link,
                "one_gpu_step": one_gpu_step,
                "format": form != "table",
                "save": save,
            }
        )
        _run_script(name, arguments, Gpus(num_gpus, memory, gpu))
    if arguments:
        raise UsageError(
            f"expected one model, got {len(target)} words",
            key="target",
            hint="ARGS are a script's: name one model",
        )
    steps = tuple(one_gpu_step or ())
    case = (name, num_gpus, batch_size, tuple(input or ()), gpu_memory, gpu, link or DEFAULT_LINK, steps)
    with failing_apart():
        report = _diagnosed(case, quiet=quiet)
    save_and_write(report, form, save or (), quiet=quiet)
    if not report.ok:
        raise typer.Exit(1)


def _diagnosed(given: tuple[Any, ...], *, quiet: bool) -> Diagnosis:
    hide_real_gpus()
    with (
        status_line(quiet=quiet, doing="doctor") as say,
        Path(os.devnull).open("w") as sink,
        contextlib.redirect_stdout(sink),  # what a model prints would only bury the answers
    ):
        with loading_torch():
            from dpdemo.diagnosing.diagnose import Case, diagnose
        return diagnose(Case(*given), say)


def _refuse_for_script(given: dict[str, object]) -> None:
    """Refuse options that ask something of a model, where the target is a script."""
    wrong = [option for option, value in given.items() if value]
    if wrong:
        raise UsageError(
            "expected a model for it, got a script",
            key=wrong[0],
            hint="options of the script stand behind it; `dpdemo exec --report FILE` keeps what was seen",
        )


def _run_script(name: str, arguments: list[str], gpus: Gpus) -> None:
    """Run a script as `exec --check` does, and end as it does."""
    from dpdemo.cli.execoutput import shower
    from dpdemo.diagnosing.answers import of_program
    from dpdemo.executing.program import find_program

    found = find_program(name, arguments)
    hide_real_gpus()
    with loading_torch():
        from dpdemo.executing.callcheck import CallCheck
        from dpdemo.executing.execute import execute
        from dpdemo.executing.hardware import Hardware

    raise SystemExit(
        execute(found, Hardware(gpus.number, gpus.memory, card=gpus.card), shower(of_program), CallCheck())
    )
