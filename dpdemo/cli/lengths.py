"""The options of `dpdemo simulate --lengths`, and its gate `--fail-on 'token-balance<0.8'`."""

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dpdemo.cli.options import More
from dpdemo.config.fields import INT64_MAX
from dpdemo.config.numbers import whole_number
from dpdemo.errors import UsageError
from dpdemo.reports.split import SplitReport
from dpdemo.wording import show

if TYPE_CHECKING:
    from dpdemo.splitting.tokens import TokenOptions


def _option(kind: Any, default: Any, flag: str, text: str, **settings: Any) -> tuple[Any, Any]:
    return Annotated[kind, typer.Option(flag, help=text, **settings)], default


_OPTIONS = {
    "lengths": _option(
        str | None,
        None,
        "--lengths",
        "Tokens of each sample: a whole number a line, or a column of CSV or JSON lines; - is stdin.",
        metavar="FILE[:COLUMN]",
    ),
    "seed": _option(
        int | None,
        None,
        "--seed",
        "Shuffle the samples as PyTorch's samplers do from this seed.",
        metavar="N",
    ),
    "group_by_length": _option(
        bool, False, "--group-by-length", "Reorder the samples as transformers' LengthGroupedSampler does."
    ),
    "sort": _option(bool, False, "--sort", "Reorder the samples by length, the longest first."),
    "pack": _option(
        int | None,
        None,
        "--pack",
        "Pack the samples, in their order, into rows of at most N tokens.",
        metavar="N",
    ),
    "pad_to": _option(
        str | None,
        None,
        "--pad-to",
        "Pad rows to the longest of their chunk or batch, or to N tokens. [default: batch; chunk under ddp]",
        metavar="chunk|batch|N",
    ),
    "cost": _option(
        Literal["linear", "quadratic"],
        "linear",
        "--cost",
        "Whether a row takes time by its tokens, or by their square, as attention does.",
    ),
    "accumulate": _option(
        int, 1, "--accumulate", "Batches of an optimizer step (gradient accumulation).", metavar="N"
    ),
}


def _read(given: dict[str, Any], keys: dict[str, Any]) -> "tuple[TokenOptions | None, dict[str, Any]]":
    """Read the lengths, and set the keys of the config that they and `--seed` decide.

    Raises:
        UsageError: for lengths that are not valid, or options without lengths.

    """
    if given["lengths"] is None:
        for name, (_, default) in _OPTIONS.items():
            if given[name] != default:
                hint = "did you mean `--set seed=`?" if name == "seed" else "add --lengths FILE"
                flag = name.replace("_", "-")
                raise UsageError(f"expected `--lengths` beside `--{flag}`, got none", hint=hint)
        return None, keys
    from dpdemo.config.lengths import read_lengths
    from dpdemo.splitting.tokens import make_options

    seed = given.pop("seed")
    lengths = read_lengths(given.pop("lengths"))
    given["pad_to"] = whole_number(given["pad_to"] or "", 1, INT64_MAX) or given["pad_to"]
    options = make_options(lengths, **given)
    if seed is not None:
        keys = {**keys, "seed": seed, "shuffle": not options.group_by_length}
    return options, {"data_size": len(lengths.values), **keys}


LENGTHS = More(_OPTIONS, _read)


def take_balance(fail_on: str, *, has_lengths: bool) -> tuple[str, float | None]:
    """Take `token-balance<0.8` out of the value of `--fail-on`, and return the rest and the limit.

    Raises:
        UsageError: for a limit that is not from 0 to 1, or without lengths.

    """
    rest, limit = [], None
    for word in fail_on.split(",") if fail_on else []:
        if not word.strip().startswith("token-balance"):
            rest.append(word)
            continue
        found = re.fullmatch(r"token-balance *< *([0-9]*\.?[0-9]+)", word.strip())
        limit = float(found[1]) if found else -1.0
        if not 0 <= limit <= 1:
            raise UsageError(
                f"expected token-balance< and a number from 0 to 1, got {show(word)}",
                key="fail_on",
                hint="write for example --fail-on 'token-balance<0.8', in quotes",
            )
        if not has_lengths:
            raise UsageError("expected `--lengths` beside `token-balance`, got none", key="fail_on")
    return ",".join(rest), limit


def failed_balance(report: SplitReport, limit: float | None) -> list[str]:
    """Return why the balance by tokens fails the limit, if it does."""
    tokens = report.tokens
    if limit is None or tokens is None or tokens.summary.balance >= limit:
        return []
    return [f"--fail-on token-balance<{limit:g}: {tokens.short()}"]
