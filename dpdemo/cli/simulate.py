"""`dpdemo simulate`: the split of an epoch, by arithmetic."""

from dataclasses import replace
from typing import Annotated

import typer

from dpdemo.cli import lengths as tokens
from dpdemo.cli import options as o
from dpdemo.cli.completion import kinds
from dpdemo.cli.edge import print_hint
from dpdemo.cli.output import show
from dpdemo.cli.settings import read_settings
from dpdemo.config.targets import expect_file, parse_target
from dpdemo.errors import CheckFailedError, about

EXAMPLES = (
    "simulate 8 --batch-size 65",
    "simulate 8 --batch-size 65 --fail-on idle,lone-sample",
    "simulate --strategy ddp --gpus 4 --save split.svg",
)
_FAIL_ON = "Exit with 1 on any of: idle,uneven,lone-sample,'token-balance<0.8' (for CI)."
FailOn = Annotated[str, o.option("--fail-on KINDS", o.CHECKS, _FAIL_ON, kinds)]


def command(
    ctx: typer.Context,
    gpus_argument: o.GpusArgument = None,
    gpus: o.Gpus = None,
    strategy: o.Strategy = None,
    weights: o.Weights = None,
    chunks: o.Chunks = None,
    batch_size: o.BatchSize = None,
    data_size: o.DataSize = None,
    drop_last: o.DropLast = None,
    lengths: tokens.Lengths = None,
    seed: tokens.Seed = None,
    group_by_length: tokens.GroupByLength = False,
    sort: tokens.Sort = False,
    pack: tokens.Pack = None,
    pad_to: tokens.PadTo = None,
    cost: tokens.Cost = "linear",
    accumulate: tokens.Accumulate = 1,
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

    chosen = tokens.read_tokens(ctx)
    below = {} if chosen is None else {"data_size": len(chosen.lengths.values)}
    above = {} if chosen is None or seed is None else {"seed": seed, "shuffle": not group_by_length}
    checked = read_settings(ctx, strategies=("dp", "ddp"), below=below, above=above)
    fail_on, limit = tokens.take_balance(fail_on, has_lengths=chosen is not None)
    failing = parse_kinds(fail_on) if fail_on else ()
    if not checked.is_builtin:
        with about("model"):
            expect_file(parse_target(checked.model))
    report = predict(checked, chosen)
    show(replace(report, verbose=verbose), form, save, quiet=quiet)
    if len(report.devices) == 1 and checked.gpus is None and not quiet:
        plain = "one rank" if report.distribution else "one plain call per batch"
        print_hint(f"no GPUs named, so this is {plain}; try --gpus 8")
    found = [f"--fail-on {finding.kind}: {finding}" for finding in find(report) if finding.kind in failing]
    found += tokens.failed_balance(report, limit)
    if found:
        raise CheckFailedError("\n".join(found))
