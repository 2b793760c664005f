"""`dpdemo check`: a pre-flight for DataParallel, on a machine without GPUs."""

import contextlib
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dpdemo.cli.checkpages import explain_traceback, show_rules
from dpdemo.cli.completion import models, rules
from dpdemo.cli.edge import print_error
from dpdemo.cli.group import command_app
from dpdemo.cli.mishaps import as_ours
from dpdemo.cli.options import SAVE_HELP
from dpdemo.cli.output import save as save_report
from dpdemo.cli.progress import status_line
from dpdemo.cli.startup import hide_real_gpus, loading_torch
from dpdemo.cli.streams import print_hint
from dpdemo.config.gpus import parse_num_virtual
from dpdemo.config.numbers import parse_numbers
from dpdemo.config.targets import looks_like_script
from dpdemo.errors import DpdemoError, UsageError, about, placed
from dpdemo.reading import current_folder
from dpdemo.saving import check_save_path, endings

if TYPE_CHECKING:
    from dpdemo.checking import CheckReport
    from dpdemo.checking.settings import Defaults

app = command_app()

_ENDINGS = endings(("json", "csv", "sarif", "markdown"))
DEFAULT_BATCH_SIZE = 32
FAILED_ITSELF = 3
"""The exit code of a check that broke off, whatever it may have found."""

_HELP = {
    "target": "model.py:Net or pkg.mod:Net: a class, or a function that returns a model, or (model, inputs).",
    "input": "[NAME=]SHAPE[:TYPE[<N]], once for each argument: 32x128, mask=32x128:bool, "
    "ids=32x16:int64<1000.",
    "inputs": "pkg.mod:function that returns the inputs of a batch size.",
    "weights": "Unequal chunks, a number for each GPU, as WeightedDataParallel cuts.",
    "chunks": "Their exact rows in a full batch, which they add up to: 4,13,13.",
    "select": "Codes, or beginnings of codes, of rules to apply: DP2,DP305.",
    "ignore": "Codes, or beginnings of codes, of rules to leave out.",
}


@app.command()
def check(  # noqa: PLR0913, PLR0917 - an option each
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help=_HELP["target"], autocompletion=models)
    ] = "",
    gpus: Annotated[str, typer.Option("--gpus", "-g", metavar="N", help="How many GPUs. [default: 4]")] = "",
    input: Annotated[list[str] | None, typer.Option("--input", metavar="SPEC", help=_HELP["input"])] = None,  # noqa: A002
    inputs: Annotated[str, typer.Option("--inputs", metavar="TARGET", help=_HELP["inputs"])] = "",
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Rows of a batch, instead of those of --input.")
    ] = None,
    data_size: Annotated[int | None, typer.Option("--data-size", min=1, help="Samples of an epoch.")] = None,
    drop_last: Annotated[bool, typer.Option("--drop-last", help="The short last batch is left out.")] = False,
    autocast: Annotated[
        Literal["float16", "bfloat16"] | None, typer.Option("--autocast", help="Autocast around the call.")
    ] = None,
    weights: Annotated[
        str,
        typer.Option("--weights", metavar="N,N,...", help=_HELP["weights"]),
    ] = "",
    chunks: Annotated[str, typer.Option("--chunks", metavar="ROWS,ROWS,...", help=_HELP["chunks"])] = "",
    select: Annotated[
        str, typer.Option("--select", metavar="CODES", help=_HELP["select"], autocompletion=rules)
    ] = "",
    ignore: Annotated[
        str, typer.Option("--ignore", metavar="CODES", help=_HELP["ignore"], autocompletion=rules)
    ] = "",
    format: Annotated[  # noqa: A002 - the option's name
        Literal["text", "json", "csv", "github", "sarif", "markdown"],
        typer.Option("--format", "-f", help="Form of the report."),
    ] = "text",
    save: Annotated[
        list[Path] | None, typer.Option("--save", metavar="FILE", help=f"{SAVE_HELP} {' '.join(_ENDINGS)}")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FILE", help="Report new findings only; made if not there."),
    ] = None,
    fail_on: Annotated[
        Literal["error", "warning", "info", "never"],
        typer.Option("--fail-on", help="Exit with 1 from a finding as bad as this."),
    ] = "error",
    traceback_of: Annotated[
        str, typer.Option("--traceback", metavar="FILE|-", help="Explain an error that DataParallel raised.")
    ] = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No hints, no progress.")] = False,
    explain: Annotated[
        str,
        typer.Option("--explain", metavar="CODE", help="Print the page of a rule.", autocompletion=rules),
    ] = "",
    list_rules: Annotated[bool, typer.Option("--list", help="List all rules.")] = False,
) -> None:
    """Find a model's pitfalls under DataParallel, on virtual GPUs, and say how to fix each.

    It runs copies of the model on one virtual GPU and on several, forward and backward, in training and in
    evaluation, and compares. Exits with 1 where it finds an error (or what --fail-on says), with 2 where it
    cannot begin, and with 3 where it fails itself.
    """
    if explain or list_rules:
        show_rules(explain)
        return
    if traceback_of:
        explain_traceback(traceback_of, format)
        return
    from dpdemo.checking.settings import read_defaults
    from dpdemo.render import make_console

    for path in save or ():
        check_save_path(path, _ENDINGS)
    defaults = read_defaults(current_folder())
    options = {
        "gpus": parse_num_virtual(gpus) if gpus else defaults.gpus or 4,
        "batch_size": batch_size,
        "data_size": data_size,
        "drop_last": drop_last,
        "autocast": autocast,
        "weights": _numbers(weights, "weights") if weights else (),
        "chunks": _numbers(chunks, "chunks") if chunks else (),
        **_chosen(select, ignore, defaults),
    }
    with failing_apart():
        report = _run(target, _inputs(input or [], inputs), options, quiet=quiet)
        if baseline is not None:
            report = _without_known(report, baseline, quiet=quiet)
        drawing = save_report(report, save or (), quiet=quiet)
    drawing.write(format, make_console())
    if report.findings and format == "text" and not quiet:
        print_hint(f"`dpdemo check --explain {report.findings[0].code}` tells more")
    if fail_on != "never" and report.fails(fail_on):
        raise typer.Exit(1)


@contextlib.contextmanager
def _hinting_at_exec(target: str) -> Iterator[None]:
    """Say what checks a program, where one was named that cannot be imported as a model can."""
    try:
        yield
    except UsageError as error:
        if error.hint or not looks_like_script(target):
            raise
        hint = f"`dpdemo exec --check {target}` runs a program and checks what it calls"
        raise UsageError(error.message, key=error.key, hint=hint) from error


def _without_known(report: "CheckReport", baseline: Path, *, quiet: bool) -> "CheckReport":
    from dpdemo.cli.baseline import without_known

    is_new = not baseline.exists()
    left = without_known(report, baseline)
    if is_new and not quiet:
        print_hint(f"{left.known} findings are written to {baseline}: from now on only new ones are reported")
    return left


@contextlib.contextmanager
def failing_apart() -> Iterator[None]:
    """Exit with a code of its own where the check itself fails, so that 1 says that it found something."""
    try:
        yield
    except UsageError:
        raise
    except DpdemoError as error:
        print_error(error)
        raise typer.Exit(FAILED_ITSELF) from None
    except Exception as error:
        ours = as_ours(error)
        if isinstance(ours, UsageError):
            raise ours from error
        if ours is not None:
            print_error(ours)
            raise typer.Exit(FAILED_ITSELF) from None
        traceback.print_exc()
        what = f"the check itself failed: {type(error).__name__}: {error}"
        print_error(DpdemoError(what, hint="this is a fault of dpdemo, not of the model: please report it"))
        raise typer.Exit(FAILED_ITSELF) from None


def _chosen(select: str, ignore: str, defaults: "Defaults") -> dict[str, tuple[str, ...]]:
    """Read which rules to apply: an option wins over pyproject.toml."""
    from dpdemo.checking.registry import choose

    chosen = {
        "select": read_codes(select) or defaults.select,
        "ignore": read_codes(ignore) or defaults.ignore,
    }
    file = f"{defaults.file}, `tool.dpdemo`"
    in_file = {key: file for key, text in (("select", select), ("ignore", ignore)) if not text}
    with placed(in_file):
        choose(chosen["select"], chosen["ignore"])  # a wrong code is reported first
    return chosen


def _inputs(shapes: list[str], function: str) -> list[str] | str | None:
    if shapes and function:
        raise UsageError("expected one of them, got both", key="input inputs")
    return shapes or function or None


def _run(
    target: str, inputs: list[str] | str | None, options: dict[str, Any], *, quiet: bool
) -> "CheckReport":
    if not target:
        raise UsageError(
            "expected a model as `model.py:Net` or `pkg.mod:Net`, got nothing",
            key="target",
            hint="name the file of your model: dpdemo check model.py:Net",
        )
    hide_real_gpus()
    # what a model prints in each of its runs would only bury the report
    with (
        status_line(quiet=quiet) as say,
        Path(os.devnull).open("w") as sink,
        contextlib.redirect_stdout(sink),
    ):
        with loading_torch():
            from dpdemo.checking.engine import check_found
            from dpdemo.checking.request import Request
            from dpdemo.models.targets import find_model, work_out_input
            from dpdemo.models.user import find_object

        def find() -> tuple[Any, object]:
            with _hinting_at_exec(target):
                model = find_model(target)
            with about("inputs"):
                given: Any = find_object(inputs) if isinstance(inputs, str) else inputs
            if given is None:
                found = work_out_input(model, target, options["batch_size"] or DEFAULT_BATCH_SIZE)
                given = found and [found]
                if found and not quiet:
                    print_hint(f"--input {found}, worked out from the first layer")
            return model, given

        return check_found(find, Request(**options, progress=say))


def _numbers(text: str, key: str) -> tuple[int | float, ...]:
    with about(key):
        return parse_numbers(text)


def read_codes(text: str) -> tuple[str, ...]:
    """Read `DP2,DP305`."""
    return tuple(code.strip() for code in text.split(",") if code.strip())
