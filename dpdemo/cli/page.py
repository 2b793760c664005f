"""`dpdemo page`: one offline HTML page that teaches the split."""

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dpdemo.cli.group import command_app
from dpdemo.cli.memoryoptions import batch_of_inputs, with_target
from dpdemo.cli.options import Output, Settings, takes_config, target_argument
from dpdemo.cli.pages import page_text, save_page
from dpdemo.cli.progress import status_line
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.streams import print_hint
from dpdemo.config.fields import Config
from dpdemo.errors import UsageError
from dpdemo.prediction.lesson import DEFAULT_GPUS, make_lesson
from dpdemo.prediction.saved import memory_of, read_memory, read_model_bytes
from dpdemo.reports.lesson import ModelBytes, PredictedMemory
from dpdemo.reports.speedup import Workload
from dpdemo.saving import check_save_path

app = command_app()

_HELP = {
    "target": "A model, as for dpdemo memory: the page shows its bytes, and each GPU's memory by phase.",
    "input": "[NAME=]SHAPE[:TYPE], once for each argument: 256x128, mask=256x128:bool.",
    "inputs": "pkg.mod:function that returns the inputs of a batch size.",
    "explained": "What dpdemo explain saved of your model as .json: its bytes.",
    "memory": "What dpdemo memory saved as .json: each GPU's memory.",
}


@app.command()
@takes_config(output=Output())
def page(  # noqa: PLR0913, PLR0917 - an option each
    settings: Settings,
    target: Annotated[str, target_argument(_HELP["target"])] = "",
    input: Annotated[list[str] | None, typer.Option("--input", metavar="SPEC", help=_HELP["input"])] = None,  # noqa: A002
    inputs: Annotated[str | None, typer.Option("--inputs", metavar="TARGET", help=_HELP["inputs"])] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Where to write it: FILE.html.")
    ] = None,
    explained: Annotated[
        Path | None, typer.Option("--explained", metavar="FILE", help=_HELP["explained"])
    ] = None,
    memory: Annotated[Path | None, typer.Option("--memory", metavar="FILE", help=_HELP["memory"])] = None,
) -> None:
    """Make one offline HTML page to try the split: sliders, the four steps, a sample to follow.

    The page opens with the case that the options say. It needs no network, and no torch to make it: only with
    TARGET a step of that model is predicted on virtual GPUs.
    """
    if target.endswith(".html"):
        raise UsageError(
            f"expected a model, got {target!r} - at argument TARGET", hint=f"`--save {target}` writes a file"
        )
    if save is None and sys.stdout.isatty():
        raise UsageError(
            "expected a file to save the page in, got a terminal - at option `--save`",
            hint="try --save page.html, and open it in a browser",
        )
    if save is not None:
        check_save_path(save, (".html",), read=list(filter(None, (explained, memory))))
    settings = with_target(settings, target)
    settings = replace(settings, config=batch_of_inputs(settings, input or []))
    model = read_model_bytes(explained) if explained else None
    held = read_memory(memory) if memory else None
    if target or input or inputs:
        _expect_one_source(explained, memory)
        model, held = _predicted(settings.config, inputs or list(input or ()) or None, quiet=settings.quiet)
    lesson = make_lesson(settings.config, model, held)
    if save is None:
        typer.echo(page_text(lesson), nl=False)
        return
    save_page(lesson, save)
    if not settings.quiet:
        print_hint(f"saved to {save}; open it in a browser")


def _expect_one_source(explained: Path | None, memory: Path | None) -> None:
    for option, path in (("--explained", explained), ("--memory", memory)):
        if path is not None:
            raise UsageError(
                f"expected one of them, got both - at option `{option}` and argument TARGET",
                hint="with TARGET the page predicts for itself",
            )


def _predicted(
    config: Config, inputs: list[str] | str | None, *, quiet: bool
) -> tuple[ModelBytes, PredictedMemory]:
    """Predict a step of the model: what is copied of it, and what each GPU holds in each phase."""
    hide_real_gpus()
    with (
        status_line(quiet=quiet, doing="predicting") as say,
        Path(os.devnull).open("w") as sink,
        contextlib.redirect_stdout(sink),  # what a model prints would only stand in the page's way
    ):
        with loading_torch():
            from dpdemo.memory.predict import predict_memory
            from dpdemo.memory.steps import Watch
            from dpdemo.timing.observe import observe_workload
        gpus = DEFAULT_GPUS if config.gpus is None else config.gpus
        report = predict_memory(config, gpus=gpus, inputs=inputs, watch=Watch(moments=True), progress=say)
        workload = observe_workload(_unweighted(config), inputs, progress=say)
    return _bytes_of(workload), memory_of(report)


def _unweighted(config: Config) -> Config:
    """Leave the weights out: what a step copies of a sample does not depend on them."""
    return config.model_copy(update={"weights": None, "chunks": None, "speeds": None})


def _bytes_of(workload: Workload) -> ModelBytes:
    def each(num_bytes: int) -> int | None:
        rows = workload.rows or 1
        return None if num_bytes % rows else num_bytes // rows

    return ModelBytes(
        name=workload.name,
        input_bytes=each(workload.input_bytes),
        output_bytes=each(workload.output_bytes),
        module_bytes=workload.parameter_bytes + workload.buffer_bytes,
        source="as a step on virtual GPUs showed them",
    )
