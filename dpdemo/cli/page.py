"""`dpdemo page`: one offline HTML page that teaches the split."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.cli import options as o
from dpdemo.cli.edge import print_hint
from dpdemo.cli.settings import read_settings
from dpdemo.config.fields import Config
from dpdemo.errors import UsageError
from dpdemo.files import replacing
from dpdemo.page import as_page
from dpdemo.splitting.shapes import predicted_devices

EXAMPLES = (
    "page --save page.html",
    "page --gpus 8 --batch-size 65 --save page.html",
    "page -c dpdemo.yaml --save page.html",
)
MOST_BATCH = 100_000
MOST_DATA = 10**9
DEFAULT_GPUS = 3
"""Those of the tutorial, where a config names none."""
Page = Annotated[Path | None, o.saved(o.OUTPUT, (".html",), "Where to write it:")]


def command(
    ctx: typer.Context,
    gpus: o.Gpus = None,
    batch_size: o.BatchSize = None,
    data_size: o.DataSize = None,
    drop_last: o.DropLast = None,
    config: o.ConfigFile = None,
    set_keys: o.SetKeys = None,
    save: Page = None,
    quiet: o.Quiet = False,
) -> None:
    """Make an offline HTML page to try the split: sliders, four steps, a sample to follow.

    The page opens with the case of the options. It needs no network.
    """
    checked = read_settings(ctx)
    if save is None and sys.stdout.isatty():
        raise UsageError(
            "expected a file to save the page in, got a terminal",
            key="save",
            hint="try {save=page.html}, and open it in a browser",
        )
    from dpdemo import __version__

    text = as_page(start_of(checked), __version__)
    if save is None:
        typer.echo(text, nl=False)
        return
    with replacing(save) as opened:
        opened.write(text)
    if not quiet:
        print_hint(f"saved to {save}; open it in a browser")


def start_of(config: Config) -> dict[str, int]:
    """Take the numbers that the page opens with from a config.

    Raises:
        UsageError: if the config is larger than the page can draw.

    """
    gpus = DEFAULT_GPUS if config.gpus is None else len(predicted_devices(config))
    for key, value, most in (
        ("gpus", gpus, MAX_GPUS),
        ("batch_size", config.batch_size, MOST_BATCH),
        ("data_size", config.data_size, MOST_DATA),
    ):
        if value > most:
            raise UsageError(
                f"expected at most {most}, the most that the page draws, got {value}",
                key=key,
                hint="`dpdemo simulate` has no such limit",
            )
    drop_last = config.drop_last
    return {"batch": config.batch_size, "data": config.data_size, "gpus": gpus, "dropLast": drop_last}
