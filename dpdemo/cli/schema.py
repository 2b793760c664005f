"""`dpdemo schema`: the JSON schemas of what goes in and what comes out."""

import json
from typing import Annotated, Literal

import typer

from dpdemo.cli.group import command_app

app = command_app()


@app.command()
def schema(
    of: Annotated[
        Literal["config", "report", "exec", "memory"],
        typer.Argument(metavar="config|report|exec|memory", help="Which schema."),
    ],
) -> None:
    """Print the JSON schema of the config, of the report, or of exec's or memory's report."""
    if of == "config":
        from dpdemo.config import Config

        found = Config.model_json_schema()
    elif of == "exec":
        from dpdemo.render import exec_schema

        found = exec_schema()
    elif of == "memory":
        from dpdemo.render.memory import memory_schema

        found = memory_schema()
    else:
        from dpdemo.render import report_schema

        found = report_schema()
    typer.echo(json.dumps(found, indent=2))
