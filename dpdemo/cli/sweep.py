"""`dpdemo sweep`: the split, or what is predicted for a model, over batch sizes and numbers of GPUs."""

import contextlib
import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from dpdemo.cli.completion import cards, links, losses
from dpdemo.cli.group import command_app
from dpdemo.cli.options import PLAIN, SAVE_HELP, target_argument
from dpdemo.cli.output import save_and_write
from dpdemo.cli.progress import progress_bar
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.sweepoptions import Given, check_unused
from dpdemo.config.axes import parse_axis
from dpdemo.config.fields import INT64_MAX, Config
from dpdemo.config.gpus import MAX_ORDINAL
from dpdemo.config.load import load_config
from dpdemo.config.numbers import read_number
from dpdemo.reports.memory import Optimizer
from dpdemo.reports.sweep import Predicted, Split, SweepReport
from dpdemo.saving import check_save_path, endings
from dpdemo.sweeping.grid import Axes
from dpdemo.sweeping.sweep import BATCH_SIZES, GPUS, sweep_axes, sweep_predicted

app = command_app()


_AXIS = "8, 1-16, every fourth 4-32:4, doubled 1-64:x2, or a list of these."
_HELP = {
    "target": "For memory, fits and speedup: the model, as for dpdemo memory. [default: linear]",
    "input": "[NAME=]SHAPE[:TYPE], once for each argument; its first number stands for every batch size.",
    "inputs": "pkg.mod:function that returns the inputs of a batch size.",
    "loss": "The loss, as for dpdemo memory.",
    "optimizer": "For memory and fits: the optimizer. [default: adamw]",
    "amp": "For memory and fits: forward and loss under torch.autocast.",
    "inference": "For memory and fits: no gradients, no optimizer.",
    "gpu_memory": "For fits: what each GPU can hold, 24GiB.",
    "gpu": "For memory and fits: the card, A100-80GB.",
    "reserve": "For memory and fits: kept free for the CUDA context. [default: 600MiB]",
    "seq_len": "Tokens of a text, for transformers:...",
    "image_size": "Pixels of an image's sides, for a library's model.",
    "numbers": "With real numbers, for models that look at them.",
    "link": "For speedup: how the GPUs are joined, pcie4 or as for dpdemo speedup.",
    "bandwidth": "For speedup: what a link carries one way, in place of --link: 20GB/s.",
    "step": "For speedup: a measured step of one GPU, and its rows: 49ms@32. Without one: the break-even.",
    "cache": "Keep predictions for the next sweep, and take those of an earlier one.",
}
_GPU = typer.Option("--gpu", metavar="CARD", help=_HELP["gpu"], autocompletion=cards)
_LOSS = typer.Option("--loss", metavar="LOSS", help=_HELP["loss"], autocompletion=losses)
_LINK = typer.Option("--link", metavar="NAME", help=_HELP["link"], autocompletion=links)


@app.command()
def sweep(  # noqa: PLR0913, PLR0917 - an option each
    target: Annotated[str, target_argument(_HELP["target"])] = "",
    gpus: Annotated[str, typer.Option("--gpus", metavar="AXIS", help=f"Numbers of GPUs: {_AXIS}")] = GPUS,
    batch_size: Annotated[
        str, typer.Option("--batch-size", metavar="AXIS", help="Batch sizes, in the same forms.")
    ] = BATCH_SIZES,
    of: Annotated[
        Literal[Split, Predicted], typer.Option("--of", help="The figure of each cell.")
    ] = "balance",
    near: Annotated[
        str | None, typer.Option("--near", metavar="N", help="Name the best cell near this batch size.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="YAML file: its batch_size is N, its model TARGET."
        ),
    ] = None,
    input: Annotated[list[str] | None, typer.Option("--input", metavar="SPEC", help=_HELP["input"])] = None,  # noqa: A002
    inputs: Annotated[str | None, typer.Option("--inputs", metavar="TARGET", help=_HELP["inputs"])] = None,
    gpu_memory: Annotated[
        str | None, typer.Option("--gpu-memory", metavar="SIZE", help=_HELP["gpu_memory"])
    ] = None,
    gpu: Annotated[str | None, _GPU] = None,
    reserve: Annotated[str | None, typer.Option("--reserve", metavar="SIZE", help=_HELP["reserve"])] = None,
    optimizer: Annotated[Optimizer | None, typer.Option("--optimizer", help=_HELP["optimizer"])] = None,
    loss: Annotated[str | None, _LOSS] = None,
    amp: Annotated[bool, typer.Option("--amp", help=_HELP["amp"])] = False,
    inference: Annotated[bool, typer.Option("--inference", help=_HELP["inference"])] = False,
    seq_len: Annotated[int | None, typer.Option("--seq-len", min=1, help=_HELP["seq_len"])] = None,
    image_size: Annotated[int | None, typer.Option("--image-size", min=1, help=_HELP["image_size"])] = None,
    numbers: Annotated[bool, typer.Option("--numbers", help=_HELP["numbers"])] = False,
    link: Annotated[str | None, _LINK] = None,
    bandwidth: Annotated[
        str | None, typer.Option("--bandwidth", metavar="RATE", help=_HELP["bandwidth"])
    ] = None,
    one_gpu_step: Annotated[
        list[str] | None, typer.Option("--one-gpu-step", metavar="TIME@ROWS", help=_HELP["step"])
    ] = None,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help=_HELP["cache"])] = True,
    form: Annotated[
        Literal["table", "json", "csv", "markdown"],
        typer.Option("--format", "-f", help="Form of the report."),
    ] = "table",
    save: Annotated[
        list[Path] | None,
        typer.Option("--save", metavar="FILE", help=f"{SAVE_HELP} {' '.join(endings(PLAIN.forms))}"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No hints, no progress.")] = False,
) -> None:
    """Map the split, memory, what fits or the speed-up over batch sizes and numbers of GPUs.

    Balance, weight and idle import no torch: each is that of a full batch, as dpdemo simulate gives it.
    Memory, fits and speedup are predicted for a model, as dpdemo memory and dpdemo speedup do, with the
    whole batch shared by the GPUs.
    """
    given = Given(
        target, tuple(input or ()), inputs, loss, optimizer, amp, inference, gpu_memory, gpu, reserve,
        seq_len, image_size, numbers, link, bandwidth, tuple(one_gpu_step or ()),
    )  # fmt: skip
    check_unused(given, of)
    paths = save or []
    for path in paths:
        check_save_path(path, endings(PLAIN.forms), read=[config] if config else [])
    set_there = Config() if config is None else load_config(config)
    start = set_there.batch_size if near is None else read_number(near, 1, INT64_MAX, "option `--near`")
    axes = Axes(
        parse_axis(gpus, MAX_ORDINAL, "option `--gpus`"),
        parse_axis(batch_size, INT64_MAX, "option `--batch-size`"),
        start,
    )
    match of:
        case "balance" | "weight" | "idle":
            report = sweep_axes(axes, of)
        case "memory" | "fits" | "speedup":
            report = _predicted(axes, of, given, config, cache=cache, quiet=quiet)
    save_and_write(report, form, paths, quiet=quiet)


def _predicted(  # noqa: PLR0913 - a sweep, its options, and what is shown and kept
    axes: Axes, of: Predicted, given: Given, file: str | None, *, cache: bool, quiet: bool
) -> SweepReport:
    from dpdemo.cli.sweepquestion import read_question  # what a sweep of the split need not wait for
    from dpdemo.sweeping.kept import Kept, cache_folder

    question = read_question(of, given, file)
    kept = Kept()
    if cache:
        with contextlib.suppress(RuntimeError):  # the user has no home
            kept = Kept.of(question.decisive(of), cache_folder())
    with (
        progress_bar(quiet=quiet, doing="cells") as show,
        Path(os.devnull).open("w") as sink,
        contextlib.redirect_stdout(sink),  # what a model prints would only bury the map
    ):
        show_progress = show or (lambda _done, _all: None)
        return sweep_predicted(axes, of, question, kept, prepare=_load_torch, progress=show_progress)


def _load_torch() -> None:
    hide_real_gpus()
    with loading_torch():
        import dpdemo.sweeping.opened  # noqa: F401 - all that predictions need
