"""`dpdemo exec --ranks N`: a program as the ranks of torch.distributed, and what each did."""

import json
import os
import sys
from pathlib import Path

from dpdemo.executing.children import reaching_children
from dpdemo.executing.hardware import Hardware
from dpdemo.executing.program import Program
from dpdemo.executing.startup.sitecustomize import LAUNCHER
from dpdemo.results.ranks import Collective, RankResult, RanksResult
from dpdemo.running.ranklog import RankLog
from dpdemo.running.ranks import Outcome, launch


def run_ranks(
    program: Program, hardware: Hardware, num_ranks: int, *, report: Path | None, quiet: bool
) -> int:
    """Run the program to its end and return its exit code; what was seen goes to stderr and to `report`."""
    chosen = ["-m", program.name] if program.is_module else [program.name]
    command = [sys.executable, *chosen, *program.arguments]
    with reaching_children(hardware):
        outcome = launch(num_ranks, command, {**os.environ, LAUNCHER: str(os.getpid())})
    result = summary(program, outcome)
    if report is not None:
        report.write_text(json.dumps(result.to_dict(), indent=2) + "\n", "utf-8")
    for line in (*result.problem, *([] if quiet else ["", *result.lines()])):
        print(line, file=sys.stderr)  # noqa: T201 - the report of a program that has ended
    return outcome.code


def summary(program: Program, outcome: Outcome) -> RanksResult:
    """Sum up what the ranks noted."""
    return RanksResult(
        program=str(program),
        arguments=program.arguments,
        ranks=tuple(
            RankResult(log.number, code, _collectives(log), log.end.get("peak_bytes", {}))
            for log, code in zip(outcome.logs, outcome.codes, strict=True)
        ),
        problem=outcome.message,
    )


def _collectives(log: RankLog) -> tuple[Collective, ...]:
    return tuple(Collective(name, count, nbytes) for name, (count, nbytes) in sorted(log.sums.items()))
