"""`dpdemo schema`: the JSON schemas of what goes in and what comes out."""

import json
from typing import Annotated

import typer

from dpdemo.cli.group import command_app
from dpdemo.render.schemas import FORMS, Form, schema_of

app = command_app()


@app.command()
def schema(
    of: Annotated[
        Form,
        typer.Argument(metavar="NAME", help=f"One of {', '.join(FORMS)}."),
    ],
) -> None:
    """Print the JSON schema of the config, of a report, or of what another command writes.

    It describes what --format json prints, and the files of `exec --report` and of `record`.
    """
    typer.echo(json.dumps(schema_of(of), indent=2))
