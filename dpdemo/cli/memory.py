"""`dpdemo memory`: what each GPU must hold, before anyone pays for it."""

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpdemo.cli.capacity import GpuMemory, say_how_read
from dpdemo.cli.completion import cards, losses
from dpdemo.cli.group import command_app
from dpdemo.cli.memoryoptions import Request, read_request, read_training, with_target
from dpdemo.cli.options import PLAIN, Settings, takes_config, target_argument
from dpdemo.cli.output import show
from dpdemo.cli.progress import status_line
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.streams import print_hint
from dpdemo.config.fields import INT64_MAX
from dpdemo.errors import CheckFailedError
from dpdemo.reports.memory import Optimizer, ZeroGrad

if TYPE_CHECKING:
    from dpdemo.reports.memory import MemoryReport

app = command_app()

_DRAWN = {".svg", ".html", ".json"}
"""The endings of files that show the step's memory over time."""
_HELP = {
    "target": "The model: `model.py:Net`, `pkg.mod:Net`, `transformers:gpt2-xl`, `torchvision:resnet50`, "
    "`timm:vit_base_patch16_224`, or a built-in name.",
    "gpu": "The card, for its memory and what CUDA takes on it: A100-80GB, T4, RTX3090.",
    "reserve": "Kept free beside what PyTorch takes, for the CUDA context. [default: 600MiB]",
    "zero_grad": "When gradients are freed: before the forward pass, after it, or set to zero and kept. "
    "[default: before]",
    "numbers": "With real numbers, for models that look at them; takes their memory on this machine.",
    "seq_len": "Tokens of a text, for transformers:... [default: 512, or what the model takes]",
    "image_size": "Pixels of an image's sides, for a library's model. [default: the model's]",
    "optimizer": "The optimizer of the step. [default: adamw]",
    "loss": "mean, mse, cross-entropy, output.loss, or a function of the output, pkg.mod:function. "
    "[default: output.loss if there is one, else mean]",
    "input": "[NAME=]SHAPE[:TYPE], once for each argument: 256x128, mask=256x128:bool.",
    "inputs": "pkg.mod:function that returns the inputs of a batch size.",
}
_SIZE: Any = {"min": 1, "max": INT64_MAX}
_GPU = typer.Option("--gpu", metavar="CARD", help=_HELP["gpu"], autocompletion=cards)
_LOSS = typer.Option("--loss", metavar="LOSS", help=_HELP["loss"], autocompletion=losses)


@app.command()
@takes_config(output=PLAIN)
def memory(  # noqa: PLR0913, PLR0917 - an option each
    settings: Settings,
    target: Annotated[str, target_argument(_HELP["target"])] = "",
    gpu_memory: GpuMemory = None,
    gpu: Annotated[str | None, _GPU] = None,
    reserve: Annotated[str | None, typer.Option("--reserve", metavar="SIZE", help=_HELP["reserve"])] = None,
    fit: Annotated[bool, typer.Option("--fit", help="Find the largest batch with which all fit.")] = False,
    optimizer: Annotated[Optimizer | None, typer.Option("--optimizer", help=_HELP["optimizer"])] = None,
    loss: Annotated[str | None, _LOSS] = None,
    zero_grad: Annotated[ZeroGrad | None, typer.Option("--zero-grad", help=_HELP["zero_grad"])] = None,
    amp: Annotated[bool, typer.Option("--amp", help="Forward and loss under torch.autocast.")] = False,
    inference: Annotated[bool, typer.Option("--inference", help="No gradients, no optimizer.")] = False,
    input: Annotated[list[str] | None, typer.Option("--input", metavar="SPEC", help=_HELP["input"])] = None,  # noqa: A002
    inputs: Annotated[str | None, typer.Option("--inputs", metavar="TARGET", help=_HELP["inputs"])] = None,
    seq_len: Annotated[
        int | None, typer.Option("--seq-len", min=1, max=INT64_MAX, help=_HELP["seq_len"])
    ] = None,
    image_size: Annotated[int | None, typer.Option("--image-size", **_SIZE, help=_HELP["image_size"])] = None,
    numbers: Annotated[bool, typer.Option("--numbers", help=_HELP["numbers"])] = False,
) -> None:
    """Predict what each GPU must hold for a training step, and the largest batch that fits.

    Nothing is allocated, and no GPU is needed: a genuine step runs on virtual GPUs whose tensors have sizes
    and no numbers. Exits with 1 where a GPU lacks memory, with --fit where not even one sample fits.
    """
    training = read_training(optimizer, loss, amp=amp, inference=inference, zero_grad=zero_grad)
    request = read_request(
        with_target(settings, target), training,
        gpu_memory=gpu_memory, fit=fit, shapes=input or [], function=inputs, gpu=gpu, reserve=reserve,
    )  # fmt: skip
    request = replace(request, seq_len=seq_len, image_size=image_size, numbers=numbers)
    if not settings.quiet:
        say_how_read(gpu_memory)
    report = _predict(request, settings)
    show(report, settings)
    if not report.fits:  # with --fit: not even one sample
        _refuse(report, settings)


def _predict(request: Request, settings: Settings) -> "MemoryReport":
    hide_real_gpus()
    quiet = settings.quiet
    # what a model prints in each of its steps would only bury the report
    with (
        status_line(quiet=quiet, doing="predicting") as say,
        Path(os.devnull).open("w") as sink,
        contextlib.redirect_stdout(sink),
    ):
        with loading_torch():
            from dpdemo.memory import largest_batch, predict_memory
            from dpdemo.models.libraries import InputSizes
        predict = largest_batch if request.fit else predict_memory
        return predict(
            request.config,
            training=request.training,
            gpu_memory=request.gpu_memory,
            gpu=request.gpu,
            reserve=request.reserve,
            inputs=request.inputs,
            input_sizes=InputSizes(request.seq_len, request.image_size),
            progress=say,
            moments=any(path.suffix.lower() in _DRAWN for path in settings.save),
            numbers=request.numbers,
        )


def _refuse(report: "MemoryReport", settings: Settings) -> None:
    """End with exit code 1, and say why on stderr where the form on stdout has no words."""
    from dpdemo.render.memory.words import verdict

    hint = "" if report.fit is not None else "--fit finds the largest batch that fits"
    if settings.format in {"json", "csv"}:
        raise CheckFailedError(verdict(report).rstrip("."), hint=hint)
    if hint and not settings.quiet:
        print_hint(hint)
    raise typer.Exit(1)
