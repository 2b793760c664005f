"""Mistakes of a program's ranks that raise no error, found by comparing the events of all ranks.

Each file holds one. Its docstring is the mistake's page: the first line names it, `Seen in:` the evidence,
and `Instead:` the remedy. Its function, under `@mistake`, compares events and yields sentences.
"""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache

from dpdemo.ranks.events import Event
from dpdemo.ranks.mistakes.evidence import Evidence
from dpdemo.ranks.mistakes.registry import DETECTORS, Detector
from dpdemo.results.ranks import Mistake


@cache
def detectors() -> tuple[Detector, ...]:
    """Return the detectors of all files here, in the order of their names."""
    for found in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{found.name}")
    return tuple(sorted(DETECTORS, key=lambda each: each.name))


def find_mistakes(
    events: Mapping[int, Sequence[Event]], *, were_stopped: bool = False, are_stuck: bool = False
) -> tuple[Mistake, ...]:
    """Compare the events of each rank; a detector that fails costs its own line of the report.

    Ranks are stopped because they are stuck, because one failed, or by the user.
    """
    if len(events) < 2:
        return ()
    evidence = Evidence(events, were_stopped=were_stopped, are_stuck=are_stuck)
    found = [
        each
        for detector in detectors()
        if detector.when_stopped or not were_stopped
        for each in detector.judge(evidence)
    ]
    return tuple(dict.fromkeys(sorted(found, key=lambda each: each.kind == "note")))
