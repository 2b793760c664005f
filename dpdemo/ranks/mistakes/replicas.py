"""No gradient was averaged, or replicas differ.

The copies of a model under DistributedDataParallel are equal as long as each step uses averaged gradients.

Seen in: gradient collectives, and a checksum of the parameters after each step

Instead: the last backward pass before a step goes through the wrapped module, outside of `no_sync()`
"""

from collections.abc import Sequence

from dpdemo.ranks.events import (
    Clipped,
    Hyperparameters,
    Late,
    Parameters,
    Read,
    Rows,
    StateLoaded,
    Steps,
    Trained,
    Unsynced,
    WrapperGone,
)
from dpdemo.ranks.mistakes.evidence import Team, by_rank, differing_hyperparameters
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake
from dpdemo.ranks.observe import ADDED

_MAX_NAMES, _ALIKE = 4, 1.01
_LOADED = (
    "load the same state on every rank (map_location=f'cuda:{local_rank}'); an average of the weights has to "
    "be updated on every rank, or broadcast from rank 0"
)
_AFTER = "the last backward pass before a step has to go through the module, outside of no_sync()"

_WINDOW = (
    "average the last pass of each window: leave no_sync, forward and backward, when "
    "(i + 1) % steps == 0, and for the last batch of an epoch"
)
_ONE_BACKWARD = (
    "add the losses, and call backward once: DistributedDataParallel averages the first backward pass that "
    "follows its forward calls"
)


@mistake("replicas")
def find(evidence: Evidence) -> Found:
    """Name replicas whose parameters differ from some step on, to the end."""
    for team in evidence.wrapped:
        if any(event.is_averaged_by_hand for noted in team.noted for event in noted[Trained]):
            continue
        first = team.first_difference()
        if first is None:
            yield from _sharded(team)
        elif not _is_explained(evidence, team, first):
            yield _explain(team, first)


def _is_explained(evidence: Evidence, team: Team, first: Parameters) -> bool:
    """Return whether another mistake names the cause: other hyperparameters, or a wrapper that is gone."""
    if any(noted[WrapperGone] for noted in evidence.ranks.values()):
        return True
    if _unsynced_by(team, first.steps):
        return False
    found = differing_hyperparameters([noted[Hyperparameters] for noted in team.noted])
    return bool(first.steps) and found is not None and found.step <= first.steps


def _unsynced_by(team: Team, step: int) -> list[Unsynced]:
    """Return the first steps without averaged gradients up to a step."""
    return [event for noted in team.noted for event in noted[Unsynced] if event.step <= max(step, 1)]


def _explain(team: Team, first: Parameters) -> Mistake:
    steps = first.steps
    when = f"after step {steps}" if steps else "before step 1"
    differ = f"{_names(team)} between ranks {when}"
    unsynced = _unsynced_by(team, steps)
    late = [event for noted in team.noted for event in noted[Late]]
    if steps and unsynced:
        return _unsynced(differ, unsynced)
    loaded = _loaded(team, max(steps - 1, 0))
    if loaded is not None:
        what, event = loaded
        return Mistake(f"{_capital(differ)}: {what}", event.at, _LOADED)
    if late:
        names = ", ".join(late[0].names)
        return Mistake(
            f"{_capital(differ)}: {names} needed no gradient when the model was wrapped: nothing averages it",
            late[0].at,
            "wrap the model again once requires_grad_(True) is called: DistributedDataParallel averages the "
            "parameters that needed a gradient when it was made",
        )
    factors = _factors(team, steps)
    if factors:
        return Mistake(
            f"{_capital(differ)}: each multiplied its gradients by a number of its own, {factors}",
            first.at,
            "reduce the number over the ranks before it scales gradients",
        )
    return _differ(differ, first)


def _loaded(team: Team, step: int) -> tuple[str, StateLoaded] | None:
    """Return the last state that only some ranks loaded after a step, or that differs between them."""
    loads = [
        {
            (event.at, event.number): event
            for event in noted[StateLoaded]
            if event.of == team.model and event.step == step
        }
        for noted in team.noted
    ]
    for key, event in sorted({key: event for mine in loads for key, event in mine.items()}.items())[::-1]:
        who = [rank for rank, mine in zip(team.ranks, loads, strict=True) if key in mine]
        whose = "the optimizer" if event.is_optimizers else "the model"
        if len(who) < len(loads):
            return f"{whose} loaded a state on rank {', '.join(map(str, who))} alone", event
        if len({mine[key].sum for mine in loads}) > 1:
            return f"{whose} loaded another state on each rank", event
    return None


def _names(team: Team) -> str:
    """Name the parameters that differ, if others are equal."""
    found = team.differing()
    known = next((event.each for noted in team.noted for event in noted.last_steps()), None)
    if not found or known is None or len(found) == len(known):
        return "the parameters differ"
    more = f" and {len(found) - _MAX_NAMES} others" if len(found) > _MAX_NAMES else ""
    names = ", ".join(found[:_MAX_NAMES])
    return f"{names}{more} {'differs' if len(found) == 1 else 'differ'}"


def _capital(text: str) -> str:
    """Begin a sentence, unless it begins with the name of a parameter."""
    return text[0].upper() + text[1:] if text.startswith("the ") else text


def _differ(differ: str, first: Parameters) -> Mistake:
    advice = "every rank has to make the same optimizer step from the same gradients"
    if not first.steps:
        advice = "load a checkpoint on every rank, or before the model is wrapped"
    if first.added:
        advice = f"{', '.join(first.added)} {ADDED}"
    return Mistake(_capital(differ), first.at, advice)


def _unsynced(differ: str, unsynced: Sequence[Unsynced]) -> Mistake:
    event = unsynced[0]
    unused = next((event.unused for event in unsynced if event.unused), ())
    bypass = next((event.bypass for event in unsynced if ":" in event.bypass), None)
    if not event.in_backward and (event.was_averaged or (event.no_sync and not unused and not bypass)):
        return _last_pass(event, f"; {differ}")
    at, advice = event.at, _AFTER
    if event.in_backward:
        advice = "step after backward(): inside it, a hook of a parameter sees the rank's own gradient"
    elif unused:
        advice = f"no gradient reached {', '.join(unused)}: find_unused_parameters=True"
    elif bypass:
        at, advice = bypass, "call the DistributedDataParallel module itself, not its `.module`"
    elif not event.was_called:
        advice = "the wrapper was never called: call it in place of the module that it wraps"
    return Mistake(f"No gradient was averaged; {differ}", at, advice)


def _last_pass(event: Unsynced, differ: str) -> Mistake:
    """Name the pass before a step that is left out of the average."""
    is_second = event.was_averaged and not event.no_sync and ":" not in event.bypass
    where = f" (no_sync at {event.no_sync})" if event.no_sync and event.no_sync != event.backward_at else ""
    return Mistake(
        f"The last backward pass before step {event.step} was not averaged{where}{differ}",
        event.backward_at or event.at,
        _ONE_BACKWARD if is_second else _WINDOW,
    )


def _sharded(team: Team) -> Found:
    """Name steps of a sharded model, whose parameters cannot be compared."""
    if not any(noted[Rows] for noted in team.noted) or "DistributedDataParallel on" in team.model:
        return
    unsynced = [event for noted in team.noted for event in noted[Unsynced] if event.no_sync]
    if unsynced:
        yield _last_pass(unsynced[0], "")
    known = [event for noted in team.noted for event in noted[Steps]]
    steps = sorted({step for noted in team.noted for step in noted.factors()})
    if any(noted[Clipped] or any(read.is_partial for read in noted[Read]) for noted in team.noted):
        return  # each of them is a mistake of its own
    step = next((step for step in steps if _factors(team, step)), None)
    if step is not None:
        found = _factors(team, step)
        yield Mistake(
            f"Each rank multiplied its gradients by a number of its own before step {step}: {found}",
            known[0].at,
            "reduce the number over the ranks first, or clip by torch.nn.utils.clip_grad_norm_",
        )


def _factors(team: Team, step: int) -> str:
    """Return by what each rank multiplied its gradients, if that differs."""
    found = {rank: noted.factors().get(step, 0.0) for rank, noted in zip(team.ranks, team.noted, strict=True)}
    sizes = [abs(factor) for factor in found.values()]
    if not all(sizes) or max(sizes) <= _ALIKE * min(sizes):
        return ""
    return by_rank(found, found.values())
