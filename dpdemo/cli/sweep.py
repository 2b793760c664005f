"""`dpdemo sweep`: the split over a grid of batch sizes and numbers of GPUs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.cli.group import command_app
from dpdemo.cli.options import PLAIN, SAVE_HELP
from dpdemo.cli.output import save_and_write
from dpdemo.config.axes import parse_axis
from dpdemo.config.fields import INT64_MAX
from dpdemo.errors import about
from dpdemo.reports.sweep import Measure
from dpdemo.saving import check_save_path, endings
from dpdemo.sweeping.sweep import BATCH_SIZES, GPUS, NEAR, sweep_axes

app = command_app()

_AXIS = "8, 1-16, every fourth 4-32:4, doubled 1-64:x2, or a list of these."


@app.command()
def sweep(  # noqa: PLR0913, PLR0917 - an option each
    gpus: Annotated[str, typer.Option("--gpus", metavar="AXIS", help=f"Numbers of GPUs: {_AXIS}")] = GPUS,
    batch_size: Annotated[
        str, typer.Option("--batch-size", metavar="AXIS", help="Batch sizes, in the same forms.")
    ] = BATCH_SIZES,
    of: Annotated[Measure, typer.Option("--of", help="The figure of each cell.")] = "balance",
    near: Annotated[
        int,
        typer.Option(
            "--near", metavar="N", min=1, max=INT64_MAX, help="Name the even batch sizes nearest to this one."
        ),
    ] = NEAR,
    form: Annotated[
        Literal["table", "json", "csv", "markdown"],
        typer.Option("--format", "-f", help="Form of the report."),
    ] = "table",
    save: Annotated[
        list[Path] | None,
        typer.Option("--save", metavar="FILE", help=f"{SAVE_HELP} {' '.join(endings(PLAIN.forms))}"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No hints.")] = False,
) -> None:
    """Map balance, loss weight or idle GPUs over batch sizes and numbers of GPUs.

    Pure arithmetic: each figure is that of a full batch, as dpdemo simulate reports it.
    """
    paths = save or []
    for path in paths:
        check_save_path(path, endings(PLAIN.forms))
    with about("gpus"):
        numbers = parse_axis(gpus, MAX_GPUS)
    with about("batch_size"):
        sizes = parse_axis(batch_size, INT64_MAX)
    report = sweep_axes(numbers, sizes, of, near)
    save_and_write(report, form, paths, quiet=quiet)
