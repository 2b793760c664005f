"""`dpdemo memory`: what each GPU must hold, before anyone pays for it."""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dpdemo.cli.capacity import GpuMemory
from dpdemo.cli.group import command_app
from dpdemo.cli.memoryoptions import Request, read_request, read_training
from dpdemo.cli.options import Output, Settings, takes_config
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.status import status_line
from dpdemo.cli.streams import print_hint
from dpdemo.errors import CheckFailedError
from dpdemo.memoryreport import Optimizer

if TYPE_CHECKING:
    from dpdemo.memoryreport import MemoryReport

app = command_app()

_OUTPUT = Output(("table", "json", "csv", "markdown"), (".svg", ".html", ".txt", ".json", ".csv", ".md"))
_HELP = {
    "optimizer": "The optimizer of the step. [default: adamw]",
    "loss": "mean, mse, cross-entropy, output.loss, or a function of the output, pkg.mod:function. "
    "[default: output.loss if there is one, else mean]",
    "input": "[NAME=]SHAPE[:TYPE], once for each argument: 256x128, mask=256x128:bool.",
    "inputs": "pkg.mod:function that returns the inputs of a batch size.",
}


@app.command()
@takes_config(lone_number_is_count=True, output=_OUTPUT)
def memory(  # noqa: PLR0913, PLR0917 - an option each
    settings: Settings,
    gpu_memory: GpuMemory = None,
    fit: Annotated[bool, typer.Option("--fit", help="Find the largest batch with which all fit.")] = False,
    optimizer: Annotated[Optimizer | None, typer.Option("--optimizer", help=_HELP["optimizer"])] = None,
    loss: Annotated[str | None, typer.Option("--loss", metavar="LOSS", help=_HELP["loss"])] = None,
    amp: Annotated[bool, typer.Option("--amp", help="Forward and loss under torch.autocast.")] = False,
    inference: Annotated[bool, typer.Option("--inference", help="No gradients, no optimizer.")] = False,
    input: Annotated[list[str] | None, typer.Option("--input", metavar="SPEC", help=_HELP["input"])] = None,  # noqa: A002
    inputs: Annotated[str | None, typer.Option("--inputs", metavar="TARGET", help=_HELP["inputs"])] = None,
) -> None:
    """Predict what each GPU must hold for a training step, and the largest batch that fits.

    Nothing is allocated, and no GPU is needed: a genuine step runs on virtual GPUs whose tensors have sizes
    and no numbers. Exits with 1 where a GPU lacks memory, with --fit where not even one sample fits.
    """
    training = read_training(optimizer, loss, amp=amp, inference=inference)
    request = read_request(
        settings, training, gpu_memory=gpu_memory, fit=fit, shapes=input or [], function=inputs
    )
    report = _predict(request, quiet=settings.quiet)
    _show(report, settings)
    if not report.fits:  # with --fit: not even one sample
        _refuse(report, settings)


def _predict(request: Request, *, quiet: bool) -> "MemoryReport":
    hide_real_gpus()
    # what a model prints in each of its steps would only bury the report
    with (
        status_line(quiet=quiet, doing="predicting") as say,
        Path(os.devnull).open("w") as sink,
        contextlib.redirect_stdout(sink),
    ):
        with loading_torch():
            from dpdemo.footprint import largest_batch, predict_memory
        predict = largest_batch if request.fit else predict_memory
        return predict(
            request.config,
            training=request.training,
            gpu_memory=request.gpu_memory,
            inputs=request.inputs,
            progress=say,
        )


def _show(report: "MemoryReport", settings: Settings) -> None:
    from dpdemo.render import make_console
    from dpdemo.render.memory import MemoryFormat, save_memory, write_memory

    write_memory(report, cast("MemoryFormat", settings.format), make_console())
    if settings.save is not None:
        save_memory(report, settings.save)
        if not settings.quiet:
            print_hint(f"saved to {settings.save}")


def _refuse(report: "MemoryReport", settings: Settings) -> None:
    """End with exit code 1, and say why on stderr where the form on stdout has no words."""
    from dpdemo.render.memory.words import verdict

    hint = "" if report.fit is not None else "--fit finds the largest batch that fits"
    if settings.format in {"json", "csv"}:
        raise CheckFailedError(verdict(report).rstrip("."), hint=hint)
    if hint and not settings.quiet:
        print_hint(hint)
    raise typer.Exit(1)
