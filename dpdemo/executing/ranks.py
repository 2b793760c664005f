"""`dpdemo exec --ranks N`: a program as the ranks of torch.distributed, and what each did."""

import json
import os
import sys
from pathlib import Path

from dpdemo.executing.children import reaching_children
from dpdemo.executing.hardware import Hardware
from dpdemo.executing.program import Program
from dpdemo.executing.startup.sitecustomize import LAUNCHER
from dpdemo.results.rankmistakes import find_mistakes
from dpdemo.results.ranks import Collective, RankModel, RankResult, RankSamples, RanksResult
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
            RankResult(
                rank=log.number,
                exit_code=code,
                collectives=_collectives(log),
                peak_bytes=log.end.get("peak_bytes", {}),
                models=_models(log),
                samples=_samples(log),
            )
            for log, code in zip(outcome.logs, outcome.codes, strict=True)
        ),
        problem=outcome.message,
        mistakes=() if outcome.message else find_mistakes({log.number: log.facts for log in outcome.logs}),
    )


def _models(log: RankLog) -> tuple[RankModel, ...]:
    made = {fact["model"]: fact for fact in log.facts if fact["kind"] == "model"}
    return tuple(
        RankModel(
            made[one["model"]]["name"],
            made[one["model"]]["at"],
            one["forwards"],
            one["backwards"],
            one["steps"],
            one["shapes"],
            made[one["model"]]["wrapper"],
        )
        for one in log.end.get("models", ())
    )


def _samples(log: RankLog) -> tuple[RankSamples, ...]:
    found: dict[str, RankSamples] = {}
    for fact in log.facts:
        if fact["kind"] == "epoch" and fact["is_indexed"]:
            one = found.get(fact["at"], RankSamples(fact["at"], 0, 0, fact["length"]))
            found[one.at] = RankSamples(one.at, one.epochs + 1, one.drawn + fact["count"], one.length)
    return tuple(found.values())


def _collectives(log: RankLog) -> tuple[Collective, ...]:
    return tuple(Collective(name, count, nbytes) for name, (count, nbytes) in sorted(log.sums.items()))
