"""`dpdemo exec --ranks N`: a program as the ranks of torch.distributed."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from dpdemo.programs.program import Program
from dpdemo.ranks.against.check import checking
from dpdemo.ranks.hardware import Hardware, reaching_children
from dpdemo.ranks.launch import launch
from dpdemo.ranks.report import summary
from dpdemo.results.ranks import RanksResult
from dpdemo.results.ranksamples import trace
from dpdemo.startup.hook import LAUNCHER


@dataclass(frozen=True)
class Extras:
    """Optional parts of the report.

    `check_steps` is the number of steps whose gradients are compared with those of one process; `sample`, an
    index or a fingerprint, is followed through all ranks.
    """

    check_steps: int | None = None
    sample: str | None = None


def run_ranks(
    program: Program,
    hardware: Hardware,
    num_ranks: int,
    finish: Callable[[RanksResult], bool],
    extras: Extras,
) -> int:
    """Run the program to its end, and return its exit code, or 1 for 0 where `finish` asks for that."""
    command = [sys.executable, *program.words]
    comparison = None
    with reaching_children(hardware):
        environment = {**os.environ, LAUNCHER: str(os.getpid())}
        if extras.check_steps is None:
            outcome = launch(num_ranks, command, environment)
        else:
            with checking(num_ranks, extras.check_steps, command, environment) as check:
                outcome = check.on_ranks()
                comparison = check.against_one(outcome, outcome.ranks)
    whole = summary(program, outcome.ranks, outcome.message, are_stuck=outcome.are_stuck)
    report = replace(whole, comparison=comparison)
    if extras.sample is not None:
        report = replace(
            report, trace=trace({each.rank: each.samples for each in report.ranks}, extras.sample)
        )
    fails = finish(report)
    return outcome.code or int(fails)
