"""A Typer command with twelve options that does nothing: `dpdemo simulate` cannot be faster."""

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
Text = Annotated[str | None, typer.Option()]


@app.command()
def main(  # noqa: PLR0917
    gpus: Text = None,
    batch_size: Text = None,
    data_size: Text = None,
    drop_last: Text = None,
    model: Text = None,
    strategy: Text = None,
    config: Text = None,
    fail_on: Text = None,
    save: Text = None,
    form: Text = None,
) -> None:
    print(gpus, len(locals()))


app()
