"""`dpdemo exec --ranks N`: a program as the ranks of torch.distributed."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace

from dpdemo.executing.program import Program
from dpdemo.ranks.against.check import checking
from dpdemo.ranks.hardware import Hardware, reaching_children
from dpdemo.ranks.launch import launch
from dpdemo.ranks.report import summary
from dpdemo.results.ranks import RanksResult
from dpdemo.results.ranksamples import trace
from dpdemo.startup.hook import LAUNCHER


def run_ranks(
    program: Program,
    hardware: Hardware,
    num_ranks: int,
    finish: Callable[[RanksResult], bool],
    check_steps: int | None = None,
    sample: str | None = None,
) -> int:
    """Run the program to its end, and return its exit code, or 1 for 0 where `finish` asks for that.

    With `check_steps`, compare the gradients of so many steps with those of one process. With `sample`, the
    report follows one sample through all ranks.
    """
    chosen = ["-m", program.name] if program.is_module else [program.name]
    command = [sys.executable, *chosen, *program.arguments]
    comparison = None
    with reaching_children(hardware):
        environment = {**os.environ, LAUNCHER: str(os.getpid())}
        if check_steps is None:
            outcome = launch(num_ranks, command, environment)
        else:
            with checking(num_ranks, check_steps, command, environment) as check:
                outcome = check.on_ranks()
                comparison = check.against_one(outcome)
    report = replace(summary(program, outcome.ranks, outcome.message), comparison=comparison)
    if sample is not None:
        report = replace(report, trace=trace({each.rank: each.samples for each in report.ranks}, sample))
    fails = finish(report)
    return outcome.code or int(fails)
