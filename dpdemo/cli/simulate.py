"""`dpdemo simulate`: the split of an epoch, by arithmetic; with `--lengths` by tokens too."""

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dpdemo.cli import options as o
from dpdemo.cli.completion import kinds, loaders
from dpdemo.cli.edge import print_hint, print_report
from dpdemo.cli.settings import read_settings, without_effect
from dpdemo.config.fields import INT64_MAX
from dpdemo.config.numbers import whole_number
from dpdemo.config.targets import expect_file, parse_target
from dpdemo.errors import CheckFailedError, UsageError, about
from dpdemo.wording import show

if TYPE_CHECKING:
    from pathlib import Path

    from dpdemo.config.fields import Config
    from dpdemo.splitting.tokens import TokenOptions

EXAMPLES = (
    "simulate 8 --batch-size 65",
    "simulate 8 --batch-size 65 --fail-on idle,lone-sample",
    "simulate --strategy ddp --gpus 4 --save split.svg",
)
_TOKENS = "Tokens"
_LENGTHS = "Tokens of each sample: a whole number a line, or a column of CSV or JSON lines; - is stdin."
Lengths = Annotated[o.Text, o.option("--lengths FILE[:COLUMN]", _TOKENS, _LENGTHS)]
_SEED = "Shuffle the samples as PyTorch's samplers do from this seed."
Seed = Annotated[int | None, o.option("--seed N", _TOKENS, _SEED)]
_GROUP = "Reorder the samples as transformers' LengthGroupedSampler does."
GroupByLength = Annotated[bool, o.option("--group-by-length", _TOKENS, _GROUP)]
Sort = Annotated[bool, o.option("--sort", _TOKENS, "Reorder the samples by length, the longest first.")]
_PACK = "Pack the samples, in their order, into rows of at most N tokens."
Pack = Annotated[int | None, o.option("--pack N", _TOKENS, _PACK, **o.SIZE)]
_PAD = "Pad rows to the longest of their chunk or batch, or to N tokens. (default: batch; chunk under ddp)"
PadTo = Annotated[o.Text, o.option("--pad-to chunk|batch|N", _TOKENS, _PAD)]
_COST = "Whether a row takes time by its tokens, or by their square, as attention does."
Cost = Annotated[Literal["linear", "quadratic"], o.option("--cost", _TOKENS, _COST)]
_ACCUMULATE = "Batches of an optimizer step (gradient accumulation)."
Accumulate = Annotated[int, o.option("--accumulate N", _TOKENS, _ACCUMULATE, **o.SIZE)]
_WITH_LENGTHS = ("seed", "group_by_length", "sort", "pack", "pad_to", "cost", "accumulate")
_FAIL_ON = "Exit with 1 on any of: idle,uneven,lone-sample,'token-balance<0.8' (for CI)."
_LOADER = "List which rank draws which samples, by the rule of a library: torch, accelerate, fastai, …"
Loader = Annotated[o.Text, o.option("--loader NAME", o.DATA, _LOADER, loaders)]
FailOn = Annotated[str, o.option("--fail-on KINDS", o.CHECKS, _FAIL_ON, kinds)]


def command(
    ctx: typer.Context,
    gpus_argument: o.GpusArgument = None,
    gpus: o.Gpus = None,
    strategy: o.Strategy = None,
    batch_size: o.BatchSize = None,
    data_size: o.DataSize = None,
    drop_last: o.DropLast = None,
    loader: Loader = None,
    lengths: Lengths = None,
    seed: Seed = None,
    group_by_length: GroupByLength = False,
    sort: Sort = False,
    pack: Pack = None,
    pad_to: PadTo = None,
    cost: Cost = "linear",
    accumulate: Accumulate = 1,
    model: o.Model = None,
    config: o.ConfigFile = None,
    set_keys: o.SetKeys = None,
    fail_on: FailOn = "",
    form: o.SplitForm = "table",
    save: o.Save = None,
    verbose: o.Verbose = False,
    quiet: o.Quiet = False,
) -> None:
    """Preview how every batch of an epoch is split, by arithmetic alone.

    Imports no torch and touches no device: --gpus takes up to 128.
    """
    from dpdemo.results.advice import find, parse_kinds
    from dpdemo.splitting.predict import predict

    tokens = _read_tokens(ctx)
    below = {} if tokens is None else {"data_size": len(tokens.lengths.values)}
    above = {} if tokens is None or seed is None else {"seed": seed, "shuffle": not group_by_length}
    checked = read_settings(ctx, strategies=("dp", "ddp"), below=below, above=above)
    if loader is not None:
        _list_draws(ctx, checked, loader, form, save)
        return
    fail_on, limit = _take_balance(fail_on, has_lengths=tokens is not None)
    failing = parse_kinds(fail_on) if fail_on else ()
    if not checked.is_builtin:
        with about("model"):
            expect_file(parse_target(checked.model))
    report = predict(checked, tokens)
    print_report(replace(report, verbose=verbose), form, save, quiet=quiet)
    if len(report.devices) == 1 and checked.gpus is None and not quiet:
        plain = "one rank" if report.distribution else "one plain call per batch"
        print_hint(f"no GPUs named, so this is {plain}; try --gpus 8")
    found = [f"--fail-on {finding.kind}: {finding}" for finding in find(report) if finding.kind in failing]
    if limit is not None and report.tokens is not None and report.tokens.summary.balance < limit:
        found.append(f"--fail-on token-balance<{limit:g}: {report.tokens.short()}")
    if found:
        raise CheckFailedError("\n".join(found))


def _list_draws(
    ctx: typer.Context, config: "Config", loader: str, form: str, save: "list[Path] | None"
) -> None:
    """List the draws of each rank, in place of the rows."""
    from dpdemo.splitting.draws import predict_draws

    without_effect(ctx, ("lengths", "fail_on"), "no `--loader` beside it", loader, "leave one of them out")
    if form not in {"table", "json"}:
        raise UsageError(f"expected table or json beside `--loader`, got `{form}`", key="form")
    print_report(predict_draws(config, loader), form, save, quiet=True)


def _read_tokens(ctx: typer.Context) -> "TokenOptions | None":
    """Read the lengths and the options that go with them, by the names of the command's parameters."""
    given = ctx.params
    if given["lengths"] is None:
        expected, hint = "`--lengths` beside it", "add --lengths FILE"
        without_effect(ctx, ("seed",), expected, "none", "did you mean `--set seed=`?")
        without_effect(ctx, _WITH_LENGTHS, expected, "none", hint)
        return None
    from dpdemo.splitting.lengths import read_lengths
    from dpdemo.splitting.tokens import make_options

    chosen = {name: given[name] for name in _WITH_LENGTHS if name != "seed"}
    chosen["pad_to"] = whole_number(chosen["pad_to"] or "", 1, INT64_MAX) or chosen["pad_to"]
    return make_options(read_lengths(given["lengths"]), **chosen)


def _take_balance(fail_on: str, *, has_lengths: bool) -> tuple[str, float | None]:
    """Take `token-balance<0.8` out of the value of `--fail-on`, and return the rest and the limit."""
    rest, limit = [], None
    for word in fail_on.split(","):
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
