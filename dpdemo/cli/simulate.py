"""`dpdemo simulate`: the split of an epoch, by arithmetic."""

from typing import Annotated

import typer

from dpdemo.cli.completion import kinds
from dpdemo.cli.group import command_app
from dpdemo.cli.lengths import LENGTHS, failed_balance, take_balance
from dpdemo.cli.options import Settings, takes_config
from dpdemo.cli.output import show
from dpdemo.cli.streams import print_hint
from dpdemo.config.targets import expect_file, parse_target
from dpdemo.errors import CheckFailedError, about
from dpdemo.reports.advice import find, parse_kinds
from dpdemo.splitting.predict import predict

app = command_app()


@app.command()
@takes_config(strategies=("dp", "ddp"), has_gpus_argument=True, more=LENGTHS)
def simulate(
    settings: Settings,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="KINDS",
            help="Exit 1 on any of: idle,uneven,lone-sample,'token-balance<0.8' (for CI).",
            autocompletion=kinds,
        ),
    ] = "",
) -> None:
    """Preview how every batch of an epoch is split, by arithmetic alone.

    Imports no torch and touches no device: --gpus takes any count.
    """
    fail_on, limit = take_balance(fail_on, has_lengths=settings.more is not None)
    kinds = parse_kinds(fail_on) if fail_on else ()
    if not settings.config.is_builtin:
        with about("model"):
            expect_file(parse_target(settings.config.model))
    report = predict(settings.config, settings.more)
    show(report, settings, verbose=settings.verbose)
    if len(report.devices) == 1 and settings.config.gpus is None and not settings.quiet:
        plain = "one rank" if report.distribution else "one plain call per batch"
        print_hint(f"no GPUs named, so this is {plain}; try --gpus 8")
    found = [f"--fail-on {finding.kind}: {finding}" for finding in find(report) if finding.kind in kinds]
    found += failed_balance(report, limit)
    if found:
        raise CheckFailedError("\n".join(found))
