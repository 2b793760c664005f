"""`dpdemo exec --ranks N`: a program as the ranks of torch.distributed."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace

from dpdemo.executing.program import Program
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
    sample: str | None = None,
) -> int:
    """Run the program to its end, and return its exit code, or 1 for 0 where `finish` asks for that.

    With `sample`, the report follows one sample through all ranks.
    """
    chosen = ["-m", program.name] if program.is_module else [program.name]
    command = [sys.executable, *chosen, *program.arguments]
    with reaching_children(hardware):
        outcome = launch(num_ranks, command, {**os.environ, LAUNCHER: str(os.getpid())})
    report = summary(program, outcome.ranks, outcome.message)
    if sample is not None:
        report = replace(report, trace=trace({each.rank: each.samples for each in report.ranks}, sample))
    fails = finish(report)
    return outcome.code or int(fails)
