"""`dpdemo check`: a pre-flight for DataParallel, on a machine without GPUs."""

import contextlib
import sys
import traceback
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from dpdemo.cli import options as o
from dpdemo.cli.completion import rules
from dpdemo.cli.edge import Edge, as_ours, print_error, print_hint, print_report
from dpdemo.cli.settings import alone, codes_of, inputs_of
from dpdemo.cli.startup import loading_torch, users_code
from dpdemo.config.gpus import parse_num_virtual
from dpdemo.errors import DpdemoError, UsageError, about, placed
from dpdemo.files import current_folder, read_text
from dpdemo.wording import show

EXAMPLES = (
    "check model.py:Net --gpus 4",
    "check model.py:Net --input 32x128 --input mask=32x128:bool",
    "check --explain DP301",
)
FAILED_ITSELF = 3
"""The exit code of a check that failed itself, with or without findings."""
DType = Literal["float16", "bfloat16"]
Autocast = Annotated[DType | None, o.option("--autocast", o.MODEL, "Autocast around the call.")]
Fails = Literal["error", "warning", "info", "never"]
FailOn = Annotated[Fails, o.option("--fail-on", o.CHECKS, "Exit with 1 from a finding of this severity on.")]
_TRACEBACK = "Explain an error that DataParallel raised."
Traceback = Annotated[str, o.option("--traceback FILE|-", o.CHECKS, _TRACEBACK)]
Explain = Annotated[str, o.option("--explain CODE", o.CHECKS, "Print the page of a rule.", rules)]
ListRules = Annotated[bool, o.option("--list", o.CHECKS, "List all rules.")]


def command(
    ctx: typer.Context,
    target: o.Target = "",
    gpus: o.Count = None,
    batch_size: o.Rows = None,
    data_size: o.DataSize = None,
    drop_last: o.DropLast = None,
    input: o.InputSpec = None,
    inputs: o.InputsFrom = None,
    autocast: Autocast = None,
    select: o.Select = "",
    ignore: o.Ignore = "",
    fail_on: FailOn = "error",
    explain: Explain = "",
    list_rules: ListRules = False,
    traceback_of: Traceback = "",
    form: o.CheckForm = "text",
    save: o.SaveCheck = None,
    quiet: o.Quiet = False,
) -> None:
    """Find a model's pitfalls under DataParallel, on virtual GPUs, and how to fix each.

    It runs copies of the model on one virtual GPU and on several, forward and backward, in training and in
    evaluation, and compares. Exits with 1 if it finds an error (or the severity of --fail-on), with 2 if it
    cannot begin, and with 3 if it fails itself.
    """
    if explain or list_rules:
        alone(ctx, "explain" if explain else "list_rules", "quiet")
        _show_rules(explain)
        return
    if traceback_of:
        alone(ctx, "traceback_of", "form", "save", "quiet")
        from dpdemo.checking.doctor import diagnose

        print_report(diagnose(_read_traceback(traceback_of)), form, save, quiet=quiet)
        return
    ctx.obj.names["model"] = "target"
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "data_size": data_size,
        "drop_last": bool(drop_last),
        "autocast": autocast,
        **_defaults(gpus, select, ignore),
    }
    given: Any = inputs_of(ctx)
    if not target:
        raise UsageError(
            "expected a model as `model.py:Net` or `pkg.mod:Net`, got nothing",
            key="target",
            hint="name the file of your model: dpdemo check model.py:Net",
        )
    with failing_apart(ctx.obj):
        with loading_torch(hides_gpus=True):
            from dpdemo.checking.engine import check_found
            from dpdemo.checking.request import Request
            from dpdemo.models.targets import find_model
            from dpdemo.models.user import find_object

        def find() -> tuple[Any, object]:
            model = find_model(target)
            with about("inputs"):
                return model, find_object(given) if isinstance(given, str) else given

        with users_code(quiet=quiet, doing="checking") as say:
            report = check_found(find, Request(**options, progress=say, target=target))
    print_report(report, form, save, quiet=quiet)
    if report.findings and form == "text" and not quiet:
        print_hint(f"`dpdemo check --explain {report.findings[0].code}` tells more")
    if fail_on != "never" and report.fails(fail_on):
        raise typer.Exit(1)


def _show_rules(code: str) -> None:
    """Print the page of a rule, or the list of all if the code is empty."""
    from dpdemo.checking import registry
    from dpdemo.results.console import write_blocks
    from dpdemo.results.rulepages import rule_list, rule_page

    write_blocks(rule_page(registry.find_rule(code)) if code else rule_list(registry.rules()))


def _read_traceback(path: str) -> str:
    """Read a text with an error that DataParallel raised."""
    try:
        return sys.stdin.read() if path == "-" else read_text(path, errors="replace")
    except OSError as error:
        raise UsageError(
            f"expected a file with a traceback, got {show(path)}: {error.strerror}",
            key="traceback",
            hint="`python train.py 2>&1 | dpdemo check --traceback -` reads it from a pipe",
        ) from error


@contextlib.contextmanager
def failing_apart(edge: Edge) -> Iterator[None]:
    """Exit with a code of its own if the check itself fails: 1 is for findings."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        ours = error if isinstance(error, DpdemoError) else as_ours(error)
        if isinstance(ours, UsageError):
            raise ours from error
        if ours is None:
            traceback.print_exc()
            ours = DpdemoError(
                f"the check itself failed: {type(error).__name__}: {error}",
                hint="this is a bug in dpdemo, not in your model: please report it",
            )
        print_error(ours, edge)
        raise typer.Exit(FAILED_ITSELF) from None


def _defaults(gpus: str | None, select: str, ignore: str) -> dict[str, object]:
    """Read the number of GPUs and which rules to apply: an option wins over pyproject.toml."""
    from dpdemo.checking.registry import choose
    from dpdemo.checking.settings import read_defaults

    defaults = read_defaults(current_folder())
    chosen = {"select": codes_of(select) or defaults.select, "ignore": codes_of(ignore) or defaults.ignore}
    file = f"{defaults.file}, `tool.dpdemo`"
    with placed({key: file for key, text in (("select", select), ("ignore", ignore)) if not text}):
        choose(chosen["select"], chosen["ignore"])  # a wrong code is reported first
    return {"gpus": parse_num_virtual(gpus) if gpus else defaults.gpus or 4, **chosen}
