"""`dpdemo speedup`: whether more GPUs pay, before anyone rents them."""

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dpdemo.cli.completion import links, losses
from dpdemo.cli.group import command_app
from dpdemo.cli.options import PLAIN, Settings, takes_config, target_argument
from dpdemo.cli.output import show
from dpdemo.cli.progress import status_line
from dpdemo.cli.speedupoptions import Given, Request, read_request
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.errors import UsageError
from dpdemo.reports.speedup import SpeedupReport, Workload
from dpdemo.timing.anchors import check_anchors
from dpdemo.timing.predict import predict_speedup

app = command_app()

_HELP = {
    "target": "The model: the same as --model.",
    "link": "How the GPUs are joined: pcie3, pcie4, pcie5, nvlink2, nvlink3, nvlink4, nvlink-3090, no-p2p.",
    "bandwidth": "What a link carries one way, in place of --link: 20GB/s.",
    "step": "A measured step of one GPU, perhaps with its rows: 49ms, 49ms@8. Several give a line.",
    "parameters": "Numbers in a model that is not there: 124M. Needs no torch.",
    "outputs": "With --parameters: bytes of the outputs of one GPU, 98MB.",
    "input": "[NAME=]SHAPE[:TYPE], once for each argument: 256x128, mask=256x128:bool.",
    "inputs": "pkg.mod:function that returns the inputs of a batch size; with --parameters their bytes.",
    "loss": "As for dpdemo memory. [default: output.loss if there is one, else mean]",
}
_LINK = typer.Option("--link", metavar="NAME", help=_HELP["link"], autocompletion=links)
_LOSS = typer.Option("--loss", metavar="LOSS", help=_HELP["loss"], autocompletion=losses)


@app.command()
@takes_config(
    output=PLAIN, gpus_help="Numbers of GPUs to compare with one. [default: 2,4,8]", has_weights=False
)
def speedup(  # noqa: PLR0913, PLR0917 - an option each
    settings: Settings,
    target: Annotated[str | None, target_argument(_HELP["target"])] = None,
    link: Annotated[str | None, _LINK] = None,
    bandwidth: Annotated[
        str | None, typer.Option("--bandwidth", metavar="RATE", help=_HELP["bandwidth"])
    ] = None,
    one_gpu_step: Annotated[
        list[str] | None, typer.Option("--one-gpu-step", metavar="TIME[@ROWS]", help=_HELP["step"])
    ] = None,
    parameters: Annotated[
        str | None, typer.Option("--parameters", metavar="N", help=_HELP["parameters"])
    ] = None,
    outputs: Annotated[str | None, typer.Option("--outputs", metavar="BYTES", help=_HELP["outputs"])] = None,
    input: Annotated[list[str] | None, typer.Option("--input", metavar="SPEC", help=_HELP["input"])] = None,  # noqa: A002
    inputs: Annotated[str | None, typer.Option("--inputs", metavar="TARGET", help=_HELP["inputs"])] = None,
    loss: Annotated[str | None, _LOSS] = None,
) -> None:
    """Predict whether more GPUs pay: bytes and launches of a step, the break-even, the speed-up.

    --gpus 2,4,8 has numbers of GPUs; --batch-size is the batch of one. Bytes and operators are counted on
    virtual GPUs, milliseconds of computation come from --one-gpu-step alone.
    """
    settings = _with_target(settings, target)
    given = Given(
        link=link,
        bandwidth=bandwidth,
        steps=tuple(one_gpu_step or ()),
        parameters=parameters,
        outputs=outputs,
        shapes=tuple(input or ()),
        inputs=inputs,
    )
    request = read_request(settings, given)
    report = _predict(request, loss or "auto", quiet=settings.quiet)
    show(report, settings)


def _with_target(settings: Settings, target: str | None) -> Settings:
    if target is None:
        return settings
    if "model" in settings.config.model_fields_set:
        raise UsageError("expected one of them, got both", key="target model")
    from dpdemo.config.load import make_config

    config = make_config({**settings.config.values(), "model": target}, settings.where)
    return replace(settings, config=config)


def _predict(request: Request, loss: str, *, quiet: bool) -> SpeedupReport:
    workload = request.workload or _observed(request, loss, quiet=quiet)
    check_anchors(request.anchors, workload)
    return predict_speedup(workload, request.link, request.gpus, request.anchors)


def _observed(request: Request, loss: str, *, quiet: bool) -> Workload:
    hide_real_gpus()
    with (
        status_line(quiet=quiet, doing="predicting") as say,
        Path(os.devnull).open("w") as sink,
        contextlib.redirect_stdout(sink),  # what a model prints would only bury the report
    ):
        with loading_torch():
            from dpdemo.timing.observe import observe_workload
        return observe_workload(request.config, request.inputs, loss=loss, progress=say)
