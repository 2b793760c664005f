"""The learning rate schedule was over after a part of the steps.

A schedule is made for all ranks' steps and stepped more often, or made for 1/N of the steps that are made.

Seen in: the learning rate at each step, the calls of the scheduler, and the length of its schedule

Instead: count the steps that one rank makes, and step the scheduler once for each of them
"""

from dpdemo.ranks.events import Scheduled
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_NEAR, _FEWEST = 0.12, 4


@mistake("schedule-over")
def find(evidence: Evidence) -> Found:
    """Look for schedules that were over after one part in N of the steps."""
    size = len(evidence.ranks)
    told = set()
    for event in (event for noted in evidence.ranks.values() for event in noted[Scheduled]):
        if event.at in told or event.steps < _FEWEST:
            continue
        text = _over(event, size)
        if text:
            told.add(event.at)
            yield Mistake(text, event.at, _remedy(event, size))


def _over(event: Scheduled, size: int) -> str:
    """Return how early a schedule was over, or nothing."""
    is_fast = event.calls >= size * event.steps * (1 - _NEAR)
    changing = (event.steps - event.still) / event.steps
    is_part = abs(changing * size - 1) <= size * max(_NEAR, 1 / event.steps)
    if event.still and is_part and (is_fast or event.last == 0):
        return (
            f"The learning rate was at its end, {event.last:.4g}, in the last {event.still} of "
            f"{event.steps} steps: {_cause(event, is_fast=is_fast)}"
        )
    if event.period and event.calls and abs(event.period * size / event.calls - 1) <= 1 / event.calls:
        return (
            f"{event.name} has a schedule of {event.period} calls, and got {event.calls}: "
            f"{_cause(event, is_fast=is_fast)}"
        )
    return ""


def _cause(event: Scheduled, *, is_fast: bool) -> str:
    if is_fast:
        return f"{event.name} made {event.calls} steps in {event.steps} steps of the optimizer"
    return f"{event.name} was made for fewer steps than each rank makes"


def _remedy(event: Scheduled, size: int) -> str:
    if event.calls >= size * event.steps * (1 - _NEAR):
        return (
            f"make the schedule for {size} times as many steps (accelerate steps a prepared scheduler "
            "once per rank), or Accelerator(step_scheduler_with_optimizer=False)"
        )
    return f"make it for all {event.steps} steps that a rank makes: len(loader) is already that of one rank"
