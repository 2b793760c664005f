"""The options of `dpdemo simulate --lengths`, and its gate `--fail-on 'token-balance<0.8'`."""

import re
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dpdemo.cli.options import SIZE, Text, option
from dpdemo.config.fields import INT64_MAX
from dpdemo.config.numbers import whole_number
from dpdemo.errors import UsageError
from dpdemo.wording import show

if TYPE_CHECKING:
    from dpdemo.results.split import SplitReport
    from dpdemo.splitting.tokens import TokenOptions

TOKENS = "Tokens"
_LENGTHS = "Tokens of each sample: a whole number a line, or a column of CSV or JSON lines; - is stdin."
Lengths = Annotated[Text, option("--lengths FILE[:COLUMN]", TOKENS, _LENGTHS)]
_SEED = "Shuffle the samples as PyTorch's samplers do from this seed."
Seed = Annotated[int | None, option("--seed N", TOKENS, _SEED)]
_GROUP = "Reorder the samples as transformers' LengthGroupedSampler does."
GroupByLength = Annotated[bool, option("--group-by-length", TOKENS, _GROUP)]
Sort = Annotated[bool, option("--sort", TOKENS, "Reorder the samples by length, the longest first.")]
_PACK = "Pack the samples, in their order, into rows of at most N tokens."
Pack = Annotated[int | None, option("--pack N", TOKENS, _PACK, **SIZE)]
_PAD = "Pad rows to the longest of their chunk or batch, or to N tokens. (default: batch; chunk under ddp)"
PadTo = Annotated[Text, option("--pad-to chunk|batch|N", TOKENS, _PAD)]
_COST = "Whether a row takes time by its tokens, or by their square, as attention does."
Cost = Annotated[Literal["linear", "quadratic"], option("--cost", TOKENS, _COST)]
_ACCUMULATE = "Batches of an optimizer step (gradient accumulation)."
Accumulate = Annotated[int, option("--accumulate N", TOKENS, _ACCUMULATE, **SIZE)]
_OPTIONS = ("seed", "group_by_length", "sort", "pack", "pad_to", "cost", "accumulate")
"""The options that go with lengths."""


def read_tokens(ctx: typer.Context) -> "TokenOptions | None":
    """Read the lengths and the options that go with them, by the names of the command's parameters.

    Raises:
        UsageError: for lengths that are not valid, or options without lengths.

    """
    given = ctx.params
    if given["lengths"] is None:
        default = {parameter.name: parameter.default for parameter in ctx.command.params}
        for name in _OPTIONS:
            if given[name] != default[name]:
                hint = "did you mean `--set seed=`?" if name == "seed" else "add --lengths FILE"
                flag = name.replace("_", "-")
                raise UsageError(f"expected `--lengths` beside `--{flag}`, got none", hint=hint)
        return None
    from dpdemo.splitting.lengths import read_lengths
    from dpdemo.splitting.tokens import make_options

    chosen = {name: given[name] for name in _OPTIONS if name != "seed"}
    chosen["pad_to"] = whole_number(chosen["pad_to"] or "", 1, INT64_MAX) or chosen["pad_to"]
    return make_options(read_lengths(given["lengths"]), **chosen)


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


def failed_balance(report: "SplitReport", limit: float | None) -> list[str]:
    """Return why the balance by tokens fails the limit, if it does."""
    tokens = report.tokens
    if limit is None or tokens is None or tokens.summary.balance >= limit:
        return []
    return [f"--fail-on token-balance<{limit:g}: {tokens.short()}"]
