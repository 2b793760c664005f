"""`dpdemo page`: one offline HTML page that teaches the split."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dpdemo.cli.group import command_app
from dpdemo.cli.options import Output, Settings, takes_config
from dpdemo.cli.streams import print_hint
from dpdemo.errors import UsageError
from dpdemo.saving import check_save_path, replacing
from dpdemo.splitting.lesson import make_lesson

app = command_app()


@app.command()
@takes_config(output=Output(), has_weights=False)
def page(
    settings: Settings,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Where to write it: FILE.html.")
    ] = None,
) -> None:
    """Make one offline HTML page to try the split: sliders, the four steps, a sample to follow.

    The page opens with the case of the options. It needs no network.
    """
    if save is None and sys.stdout.isatty():
        raise UsageError(
            "expected a file to save the page in, got a terminal",
            key="save",
            hint="try --save page.html, and open it in a browser",
        )
    if save is not None:
        check_save_path(save, (".html",))
    from dpdemo import __version__
    from dpdemo.render.page import as_page

    text = as_page(make_lesson(settings.config), __version__)
    if save is None:
        typer.echo(text, nl=False)
        return
    with replacing(save) as file:
        file.write(text)
    if not settings.quiet:
        print_hint(f"saved to {save}; open it in a browser")
