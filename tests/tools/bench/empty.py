"""A Typer command with the options of `dpdemo simulate` that does nothing: none of them can be faster."""

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
Text = Annotated[str | None, typer.Option()]
Flag = Annotated[bool | None, typer.Option()]


@app.command()
def main(  # noqa: PLR0917
    gpus_argument: Annotated[str | None, typer.Argument()] = None,
    config: Text = None,
    input_size: Text = None,
    output_size: Text = None,
    batch_size: Text = None,
    data_size: Text = None,
    gpus: Text = None,
    model: Text = None,
    output_device: Text = None,
    dim: Text = None,
    shuffle: Flag = None,
    drop_last: Flag = None,
    seed: Text = None,
    dtype: Annotated[Literal["float32", "float64"] | None, typer.Option()] = None,
    strategy: Annotated[Literal["dp", "ddp"] | None, typer.Option()] = None,
    nodes: Text = None,
    processes: Text = None,
    batch_size_is: Annotated[Literal["per-rank", "global"] | None, typer.Option()] = None,
    sampler_drop_last: Flag = None,
    weights: Text = None,
    chunks: Text = None,
    speeds: Text = None,
    trace_sample: Text = None,
    fail_on: Text = None,
    form: Annotated[Literal["table", "json"], typer.Option("--format")] = "table",
    save: Annotated[list[Path] | None, typer.Option()] = None,
    quiet: Flag = None,
    verbose: Flag = None,
) -> None:
    print(gpus, len(locals()))


app()
