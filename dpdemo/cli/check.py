"""`dpdemo check`: a pre-flight for DataParallel, on a machine without GPUs."""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dpdemo.cli.group import command_app
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.status import status_line
from dpdemo.cli.streams import print_hint
from dpdemo.errors import UsageError

if TYPE_CHECKING:
    from dpdemo.preflight import CheckReport
    from dpdemo.preflight.settings import Defaults

app = command_app()

_HELP = {
    "target": "pkg.mod:factory, which returns the model, or (model, inputs); a class will do.",
    "input": "[NAME=]SHAPE[:TYPE[<N]], once for each argument: 32x128, mask=32x128:bool, "
    "ids=32x16:int64<1000.",
    "inputs": "pkg.mod:function that returns the inputs of a batch size.",
    "select": "Codes, or beginnings of codes, of rules to apply: DP2,DP305.",
    "ignore": "Codes, or beginnings of codes, of rules to leave out.",
}


@app.command()
def check(  # noqa: PLR0913, PLR0917 - an option each
    target: Annotated[str, typer.Argument(metavar="TARGET", help=_HELP["target"])] = "",
    gpus: Annotated[str, typer.Option("--gpus", "-g", metavar="N", help="How many GPUs. [default: 4]")] = "",
    input: Annotated[list[str] | None, typer.Option("--input", metavar="SPEC", help=_HELP["input"])] = None,  # noqa: A002
    inputs: Annotated[str, typer.Option("--inputs", metavar="TARGET", help=_HELP["inputs"])] = "",
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="The one that --inputs gets.")] = 32,
    data_size: Annotated[int | None, typer.Option("--data-size", min=1, help="Samples of an epoch.")] = None,
    drop_last: Annotated[bool, typer.Option("--drop-last", help="The short last batch is left out.")] = False,
    autocast: Annotated[
        Literal["float16", "bfloat16"] | None, typer.Option("--autocast", help="Autocast around the call.")
    ] = None,
    select: Annotated[str, typer.Option("--select", metavar="CODES", help=_HELP["select"])] = "",
    ignore: Annotated[str, typer.Option("--ignore", metavar="CODES", help=_HELP["ignore"])] = "",
    format: Annotated[  # noqa: A002 - the option's name
        Literal["text", "json", "github", "sarif", "markdown"],
        typer.Option("--format", "-f", help="Form of the report."),
    ] = "text",
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Save it, too: .txt .json .sarif .md")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No hints, no progress.")] = False,
    explain: Annotated[str, typer.Option("--explain", metavar="CODE", help="Print the page of a rule.")] = "",
    list_rules: Annotated[bool, typer.Option("--list", help="List all rules.")] = False,
) -> None:
    """Find a model's pitfalls under DataParallel, on virtual GPUs, and say how to fix each.

    It runs copies of the model on one virtual GPU and on several, forward and backward, in training and in
    evaluation, and compares. Exits with 1 where it finds an error.
    """
    if explain or list_rules:
        _show_rules(explain)
        return
    from dpdemo.preflight.settings import read_defaults

    if save is not None:
        from dpdemo.render import check_save_path
        from dpdemo.render.checks import ENDINGS

        check_save_path(save, ENDINGS)  # before anything runs
    defaults = read_defaults(Path.cwd())
    options = {
        "gpus": _number(gpus, defaults.gpus),
        "batch_size": batch_size,
        "data_size": data_size,
        "drop_last": drop_last,
        "autocast": autocast,
        **_chosen(select, ignore, defaults),
    }
    report = _run(target, _inputs(input or [], inputs), options, quiet=quiet)
    _show(report, format, save, quiet=quiet)
    if not report.ok:
        raise typer.Exit(1)


def _show_rules(code: str) -> None:
    from dpdemo.preflight.registry import find_rule
    from dpdemo.render import make_console
    from dpdemo.render.checks.pages import print_list, print_page

    if code:
        print_page(find_rule(code), make_console())
    else:
        print_list(make_console())


def _chosen(select: str, ignore: str, defaults: "Defaults") -> dict[str, tuple[str, ...]]:
    """Read which rules to apply: an option wins over pyproject.toml."""
    from dpdemo.preflight.registry import choose

    chosen = {"select": _codes(select) or defaults.select, "ignore": _codes(ignore) or defaults.ignore}
    in_file = f"{defaults.file}, `tool.dpdemo`"
    where = ("option `--select`" if select else in_file, "option `--ignore`" if ignore else in_file)
    choose(chosen["select"], chosen["ignore"], where=where)  # a wrong code is told before anything is built
    return chosen


def _inputs(shapes: list[str], function: str) -> list[str] | str | None:
    if shapes and function:
        raise UsageError("expected one of them, got both - at options `--input` and `--inputs`")
    return shapes or function or None


def _run(
    target: str, inputs: list[str] | str | None, options: dict[str, Any], *, quiet: bool
) -> "CheckReport":
    if not target:
        raise UsageError("expected `pkg.mod:factory`, got nothing - at argument TARGET", hint="see --help")
    hide_real_gpus()
    # what a model prints in each of its runs would only bury the report
    with (
        status_line(quiet=quiet) as say,
        Path(os.devnull).open("w") as sink,
        contextlib.redirect_stdout(sink),
    ):
        with loading_torch():
            from dpdemo.preflight.engine import check as run_check
            from dpdemo.usermodel import find_object
        model = find_object(target, "argument TARGET")
        given = find_object(inputs, "option `--inputs`") if isinstance(inputs, str) else inputs
        return run_check(model, given, **options, progress=say)


def _number(text: str, default: int | None) -> int:
    from dpdemo.gpus import parse_gpus

    if not text:
        return default if default is not None else 4
    gpus = parse_gpus(text, lone_number_is_count=True)
    if gpus == "all":
        raise UsageError(
            "expected a count such as 4, got `all` - at option `--gpus`", hint="virtual GPUs have no end"
        )
    return gpus if isinstance(gpus, int) else len(gpus)


def _codes(text: str) -> tuple[str, ...]:
    return tuple(code.strip() for code in text.split(",") if code.strip())


def _show(report: "CheckReport", format: Any, save: Path | None, *, quiet: bool) -> None:  # noqa: A002
    from dpdemo.render import make_console
    from dpdemo.render.checks import save_check, write_check

    write_check(report, format, make_console())
    if save is not None:
        save_check(report, save)
        if not quiet:
            print_hint(f"saved to {save}")
    if report.findings and format == "text" and not quiet:
        print_hint(f"`dpdemo check --explain {report.findings[0].code}` tells more")
