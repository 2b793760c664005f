"""`dpdemo exec --ranks N`: a program as the ranks of torch.distributed, and what each did."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from dpdemo.executing.hardware import Hardware, reaching_children
from dpdemo.executing.mistakes import find_mistakes
from dpdemo.executing.program import Program
from dpdemo.executing.startup.sitecustomize import LAUNCHER
from dpdemo.results.ranks import Collective, Coverage, RankModel, RankResult, RankSamples, RanksResult
from dpdemo.running.ranklog import RankLog
from dpdemo.running.ranks import launch


def run_ranks(
    program: Program, hardware: Hardware, num_ranks: int, finish: Callable[[RanksResult], None]
) -> int:
    """Run the program to its end, hand the report to `finish`, and return the exit code."""
    chosen = ["-m", program.name] if program.is_module else [program.name]
    command = [sys.executable, *chosen, *program.arguments]
    with reaching_children(hardware):
        outcome = launch(num_ranks, command, {**os.environ, LAUNCHER: str(os.getpid())})
    finish(summary(program, outcome.ranks, outcome.message))
    return outcome.code


def summary(program: Program, logs: Sequence[RankLog], problem: tuple[str, ...]) -> RanksResult:
    """Sum up what the ranks noted."""
    return RanksResult(
        program=str(program),
        arguments=program.arguments,
        ranks=tuple(
            RankResult(
                rank=log.number,
                exit_code=log.exit_code(),
                collectives=tuple(Collective(name, *sums) for name, sums in sorted(log.sums.items())),
                peak_bytes=log.end.get("peak_bytes", {}),
                models=_models(log),
                samples=_samples(log),
            )
            for log in logs
        ),
        problem=problem,
        mistakes=() if problem else find_mistakes({log.number: log.facts for log in logs}),
        coverage=tuple(_coverage(logs)),
    )


def _models(log: RankLog) -> tuple[RankModel, ...]:
    made = {fact["model"]: fact for fact in log.facts if fact["kind"] == "model"}
    return tuple(
        RankModel(
            made[model["model"]]["name"],
            made[model["model"]]["at"],
            model["forwards"],
            model["backwards"],
            model["steps"],
            model["shapes"],
            made[model["model"]]["wrapper"],
        )
        for model in log.end.get("models", ())
    )


def _samples(log: RankLog) -> tuple[RankSamples, ...]:
    found: dict[str, RankSamples] = {}
    for fact in log.facts:
        if fact["kind"] == "epoch" and fact["is_indexed"]:
            samples = found.get(fact["at"], RankSamples(fact["at"], 0, 0, fact["length"]))
            found[samples.at] = RankSamples(
                samples.at, samples.epochs + 1, samples.drawn + fact["count"], samples.length
            )
    return tuple(found.values())


def _coverage(logs: Sequence[RankLog]) -> Iterator[Coverage]:
    """Count the samples that all ranks together drew in a DataLoader's first epoch, where all finished it."""
    first = [
        {fact["at"]: fact for fact in log.facts if fact["kind"] == "epoch" and fact["number"] == 1}
        for log in logs
    ]
    for at, fact in first[0].items() if first else ():
        row = [
            epochs[at]
            for epochs in first
            if at in epochs and epochs[at]["is_complete"] and epochs[at]["drawn"] is not None
        ]
        same_data = len({epoch["dataset"] for epoch in row}) == 1
        if len(row) == len(logs) and same_data and fact["length"]:
            times = Counter(index for epoch in row for index in epoch["drawn"])
            drawn = times.total()
            yield Coverage(at, fact["length"], drawn, drawn - len(times), fact["length"] - len(times))
