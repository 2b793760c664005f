"""`dpdemo doctor`: one screen about a model or a program; `dpdemo TARGET` alone is the same."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from dpdemo.cli import options as o
from dpdemo.cli.check import failing_apart
from dpdemo.cli.completion import models
from dpdemo.cli.edge import print_hint, print_report
from dpdemo.cli.settings import read_gpu_memory, without_effect
from dpdemo.cli.startup import loading_torch, users_code
from dpdemo.config.gpus import card_named, parse_num_virtual
from dpdemo.config.targets import looks_like_script
from dpdemo.errors import UsageError
from dpdemo.results.console import canvas_of, write_lines
from dpdemo.results.diagnosis import Diagnosis
from dpdemo.timing.links import DEFAULT_LINK, find_link

EXAMPLES = (
    "doctor model.py:Net --gpus 4",
    "doctor --gpus 4 --input 32x8 --gpu-memory 24GiB model.py:Net",
    "train.py --epochs 1",
)
DEFAULT_GPUS = 4
TargetAndArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET [ARGS]",
        help="The model: model.py:Net, model.py, pkg.mod:Net or a built-in name; or a script with its ARGS.",
        autocompletion=models,
    ),
]


def command(
    ctx: typer.Context,
    target: TargetAndArguments,
    gpus: o.Count = None,
    gpu: o.Card = None,
    gpu_memory: o.GpuMemory = None,
    link: o.Link = DEFAULT_LINK,
    batch_size: o.Rows = None,
    input: o.InputSpec = None,
    form: o.TextForm = "text",
    save: o.SaveText = None,
    quiet: o.Quiet = False,
) -> None:
    """Check a model on one screen: even split, correctness, memory, speed-up, next step.

    Options go before a script, whose ARGS are its own, and on either side of a model. Exits with 1 if
    something is wrong or does not fit. A script is run as dpdemo exec --check does: the answers go to stderr
    when it is over, and the exit code is its own.
    """
    ctx.obj.names["model"] = "target"
    num_gpus = DEFAULT_GPUS if gpus is None else parse_num_virtual(gpus)
    memory = read_gpu_memory(gpu_memory, num_gpus)
    if gpu is not None:
        card_named(gpu)
    find_link(link)
    name, arguments = target[0], target[1:]
    if looks_like_script(name):
        of_models = ("input", "batch_size", "link", "save", "form")
        hint = "options of the script go after it; `dpdemo exec --save FILE` saves the report"
        without_effect(ctx, of_models, "a model for it", "a script", hint)
        _run_script(name, arguments, num_gpus, memory, gpu)
    if arguments:
        raise UsageError(
            f"expected one model, got {len(target)} words",
            key="target",
            hint="ARGS are a script's: name one model",
        )
    with failing_apart(ctx.obj):
        case = name, num_gpus, batch_size, tuple(input or ()), gpu_memory, gpu, link
        report = _diagnosis(*case, is_shown=form == "text", quiet=quiet)
    print_report(report, None if form == "text" else form, save, quiet=quiet)
    if not report.ok:
        raise typer.Exit(1)


def _run_script(
    name: str, arguments: Sequence[str], num_gpus: int, memory: Sequence[int] | None, card: str | None
) -> NoReturn:
    """Run a script here, as `exec --check` does, and answer when it is over."""
    from dpdemo.cli.exec import finisher, run_here
    from dpdemo.diagnosing.answers import of_program
    from dpdemo.programs.program import find_program
    from dpdemo.ranks.hardware import Hardware

    hardware = Hardware(num_gpus, memory, card=card)
    run_here(find_program(name, arguments), hardware, finisher(answer=of_program), ((), ()))


def _diagnosis(*case: Any, is_shown: bool, quiet: bool) -> Diagnosis:
    """Diagnose a model; each answer is printed when it is known, above the line of progress."""
    with loading_torch(hides_gpus=True):
        from dpdemo.diagnosing.case import Case
        from dpdemo.diagnosing.diagnose import diagnose

    out, num_shown = sys.stdout, 0

    def show(report: Diagnosis) -> None:
        nonlocal num_shown
        if is_shown:
            write_lines(report.after(num_shown, canvas_of(out)), out)
            out.flush()
            num_shown = len(report.answers)

    try:
        with users_code(quiet=quiet, doing="doctor") as say:
            report = diagnose(Case(*case), say, show)
    except KeyboardInterrupt:
        print_hint("interrupted: the questions that are missing were not answered")
        raise
    show(report)
    return report
