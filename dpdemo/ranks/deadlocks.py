"""Find ranks that can never continue, from the notes of all ranks.

Three rules, none of which takes a slow rank for a hung one. The n-th collective of a group must be the same
on all its ranks. A rank that is blocked in a collective cannot go on if a member that has not begun it has
ended, or is blocked for good itself. A rank whose connection broke is not the one that failed first.
"""

import itertools
import operator
from collections.abc import Sequence
from math import inf, prod
from signal import Signals

from dpdemo.ranks.events import NEW_GROUP, POINT_TO_POINT, Collective
from dpdemo.ranks.log import PAIR, RankLog
from dpdemo.wording import counted

_SAME_ORDER = (
    "Every rank has to make the same collectives: look for a branch on the rank, or on its own data."
)
_AS_MANY = (
    "Every rank needs as many steps: DistributedSampler gives all ranks as many batches, "
    "and `with model.join():` lets ranks of DistributedDataParallel end early."
)
_ALONE = (
    "A collective that some ranks alone call, as under `if rank == 0:`, has to be called by all. If a rank "
    "left its loop early, all need as many steps: a sampler that pads, one decision, or `model.join()`."
)
_JOINED = "Every rank has to call init_process_group, with the same number of ranks."
_SIZES = (
    "Every rank has to pass tensors of the sizes that the others expect: pad them, or gather the sizes first."
)
_OTHER_SIZES = " (other sizes)"
_GROUPS = (
    "Every rank has to call new_group for every group, in the same order, also for groups that it is not in."
)
_LOCAL = (
    "With use_local_synchronization, all ranks of a group have to be in as many other groups when they make "
    "it: leave it out, or make the groups in an order that has them in as many."
)
_OTHER_NUMBER = " (another number of groups before)"
_PAIRS = (
    "A send and its recv meet only if one rank sends while the other receives: turn the order on one side."
)
_UNPAIRED = (
    "Each send needs a recv on the other rank, and each recv a send: look for one that the other rank leaves "
    "out, as in a last micro-batch or under a branch on the rank."
)


def mismatch(ranks: Sequence[RankLog]) -> tuple[str, ...]:
    """Name the first collective of a group that differs between its ranks, and forget those that agree."""
    by_number = {rank.number: rank for rank in ranks}
    for group in sorted({group for rank in ranks for group in rank.open}):
        members = next((rank.members[group] for rank in ranks if group in rank.members), ())
        members = tuple(dict.fromkeys(members))  # a rank that sends to itself is both
        while True:
            begun = [by_number[number] for number in members if number in by_number]
            begun = [rank for rank in begun if rank.open.get(group)]
            front = [rank.open[group][0] for rank in begun]
            differing = None if group.startswith(PAIR) else _differing(front)
            if differing is not None:
                return (
                    f"The ranks are not in the same collective{differing}; NCCL would hang or mix them up:",
                    *(f"  {rank.describe(event)}" for rank, event in zip(begun, front, strict=True)),
                    *_progress(begun),
                    f"  {_advice(differing, front)}",
                )
            if len(begun) < len(members) or not members:
                break
            for rank in begun:
                rank.open[group].popleft()
    return ()


def _advice(differing: str, begun: Sequence[Collective]) -> str:
    if begun[0].group.startswith(NEW_GROUP):
        return _LOCAL if differing == _OTHER_NUMBER else _GROUPS
    if len({event.backward for event in begun}) > 1:
        return _AS_MANY if differing else _ALONE
    return _SIZES if differing in {" (another shape)", _OTHER_SIZES} else _SAME_ORDER


def _differing(front: Sequence[Collective]) -> str | None:
    """Describe how the collectives differ, or return None if they match."""
    if len(front) < 2:
        return None
    first, *others = front
    if any(event.op != first.op for event in others):
        return ""
    for key, word in _WORDS.items():
        is_other = _are_other_shapes if key == "same" else operator.ne
        values = [getattr(event, key) for event in front]
        if any(is_other(one, other) for one, other in itertools.combinations(values, 2)):
            return f" (another {word})"
    return _splits_differ(front)


_Shapes = tuple[tuple[int, ...], ...] | None


def _are_other_shapes(some: _Shapes, others: _Shapes) -> bool:
    """Return whether shapes differ in more than a flat view: NCCL compares no shapes, and counts elements."""
    if some is None or others is None or len(some) != len(others):
        return some != others
    return any(
        one != other and (prod(one) != prod(other) or min(len(one), len(other)) > 1)
        for one, other in zip(some, others, strict=True)
    )


_WORDS = {
    "dtype": "dtype",
    "same": "shape",
    "root": "root",
    "reduce": "reduction",
    "ranks": "choice of ranks",
    "groups": "number of groups before",
}
"""By field of a collective, what to call it if ranks differ in it."""


def _splits_differ(row: Sequence[Collective]) -> str | None:
    """Compare what each rank sends to each other one with what that one expects."""
    splits = [event.splits for event in row if event.splits is not None]
    if len(splits) < len(row) or len(row) != len(splits[0][0]):
        return None
    for sender, mine in enumerate(splits):
        for receiver, theirs in enumerate(splits):
            if mine[1][receiver] != theirs[0][sender]:
                return _OTHER_SIZES
    return None


def stuck(ranks: Sequence[RankLog]) -> tuple[str, ...]:
    """Name ranks that wait for one that has ended, or for each other."""
    blocked = [rank for rank in ranks if rank.waiting is not None and not rank.has_ended]
    needs = {rank: _missing(rank, ranks) for rank in blocked}
    for rank, missing in needs.items():
        gone = next((each for each in missing if each.has_ended), None)
        if gone is not None:
            return waits_for(rank, gone)
    waiting = [rank for rank, missing in needs.items() if missing]
    while (staying := [rank for rank in waiting if set(needs[rank]) & set(waiting)]) != waiting:
        waiting = staying
    if not waiting:
        return ()
    pairs = [_is_pair(rank) for rank in waiting]
    order = _GROUPS if any(map(_is_making_group, waiting)) else _SAME_ORDER
    return (
        "The ranks wait for each other; NCCL would hang:",
        *(f"  {_waiting_in(rank)}" for rank in waiting),
        *_progress(waiting),
        f"  {_PAIRS if all(pairs) else _UNPAIRED if any(pairs) else order}",
    )


def waits_for(rank: RankLog, gone: RankLog) -> tuple[str, ...]:
    """Name a rank that waits for one that has ended."""
    return (
        f"rank {rank.number} waits for rank {gone.number}, which has ended:",
        f"  {_waiting_in(rank)}",
        _last_of(gone),
        *_progress([rank, gone]),
        f"  {_needs(rank)}",
    )


def _last_of(gone: RankLog) -> str:
    return f"  {gone.describe()}{' was its last' if gone.last else ''}"


NONE_LEFT = "waited for {}, and no process is left to join:"
NOT_STARTED = "waiting for {}, which this program did not start: start elsewhere, or correct world_size"


def never_joined(waiting: Sequence[RankLog], known: set[int], what: str) -> tuple[str, ...]:
    """Name the ranks for which others wait in init_process_group; `known` are those that ever called it."""
    size = max(rank.joining[1] for rank in waiting if rank.joining is not None)
    missing = sorted(set(range(size)) - known)
    if not missing:
        return ()
    ranks = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
    return (
        f"{counted(len(waiting), 'rank')} of {size} {what.format(ranks)}",
        *(f"  {rank.whereabouts()}" for rank in sorted(waiting, key=lambda rank: rank.number)),
        f"  {_JOINED}",
    )


def left_alone(ranks: Sequence[RankLog]) -> tuple[str, ...]:
    """Name a collective that a rank began and did not wait for, if another has ended without it.

    Groups whose names differ between ranks, as those of split_group may, are not judged.
    """
    if not all(rank.end for rank in ranks):
        return ()
    by_number = {rank.number: rank for rank in ranks}
    for rank in ranks:
        for key, begun in rank.open.items():
            others = [by_number.get(number, rank) for number in rank.members[key]]
            if not begun or any(begun[0].group not in other.members for other in others):
                continue
            gone = next((other for other in others if other.counts.get(key, 0) < rank.counts[key]), None)
            if gone is not None:
                alone = begun[gone.counts.get(key, 0) - rank.counts[key]]
                return (
                    f"rank {rank.number} began what rank {gone.number} has ended without; NCCL would hang:",
                    f"  {rank.describe(alone)}",
                    _last_of(gone),
                    f"  {_UNPAIRED if alone.op in POINT_TO_POINT else _ALONE}",
                )
    return ()


def _needs(rank: RankLog) -> str:
    """Say what a rank that waits for one that has ended would have needed of it."""
    if _is_making_group(rank):
        return _GROUPS
    if _is_pair(rank):
        return _UNPAIRED
    return _JOINED if rank.waiting is not None and rank.waiting.is_setup else _AS_MANY


def _is_making_group(rank: RankLog) -> bool:
    return rank.last is not None and rank.last.group.startswith(NEW_GROUP)


def _first_open(rank: RankLog) -> Collective | None:
    groups = sorted(rank.open, key=lambda group: group.startswith(PAIR))
    return next((event for group in groups for event in rank.open[group]), None)


def _is_pair(rank: RankLog) -> bool:
    """Return whether the rank waits in a send or recv."""
    first = _first_open(rank)
    return first is not None and first.op in POINT_TO_POINT


def _waiting_in(rank: RankLog) -> str:
    first = _first_open(rank)
    return rank.whereabouts() if first is None else rank.describe(first)


def _missing(rank: RankLog, ranks: Sequence[RankLog]) -> list[RankLog]:
    """Return the ranks that have not begun what this one is blocked in."""
    others = [each for each in ranks if each is not rank]
    groups = [
        group
        for group, begun in rank.open.items()
        if begun and (not group.startswith(NEW_GROUP) or rank.last is begun[-1])
    ]

    def is_missing(other: RankLog, group: str) -> bool:
        return other.number in rank.members[group] and other.counts.get(group, 0) < rank.counts[group]

    missing = [other for other in others if any(is_missing(other, group) for group in groups)]
    if missing or rank.waiting is None or not rank.waiting.is_setup:
        return missing
    return [
        other
        for other in others
        if other.setups <= rank.setups  # whoever is through has done its part: this rank is only slower
        and (other.has_ended or other.waiting is None or not other.waiting.is_setup)
    ]


def _progress(ranks: Sequence[RankLog]) -> list[str]:
    """Describe how many backward passes each rank has averaged, if these differ, and what has no gradient."""
    passes = {rank.number: _passes(rank) for rank in ranks}
    made = [f"rank {number} made {count}" for number, count in passes.items() if count is not None]
    lines = []
    if len(set(passes.values()) - {None}) > 1:
        lines.append(f"  Averaged backward passes: {', '.join(made)}")
    for rank in ranks:
        place = rank.waiting or rank.end
        if place is not None and place.unused:
            names = ", ".join(place.unused[:8])
            lines.append(f"  rank {rank.number}: no gradient for {names}: pass find_unused_parameters=True")
    return lines


def _passes(rank: RankLog) -> int | None:
    """Return how many backward passes a rank has begun to average, as far as it noted that."""
    events = (rank.last, rank.waiting, rank.end)
    return max((event.backward for event in events if event is not None), default=None)


def first_failure(ranks: Sequence[RankLog]) -> RankLog | None:
    """Return the rank that failed first by itself, or None if all only lost their connection to another."""
    culprits = [rank for rank in ranks if rank.has_failed and not rank.is_consequence]

    def failed_at(rank: RankLog) -> float:
        return min(rank.ended_at, rank.error.t if rank.error else inf)

    return min(culprits, key=failed_at, default=None)


def failure(ranks: Sequence[RankLog], how: str = "") -> tuple[RankLog | None, tuple[str, ...]]:
    """Return the rank that failed first, and its error or else how it ended, and where the others waited.

    None if a rank only lost its connection to one that has ended well.
    """
    first = first_failure(ranks)
    if first is None:
        first = next(rank for rank in ranks if rank.has_failed)
        gone = next((rank for rank in ranks if rank.has_ended), None)
        if gone is not None:
            return None, waits_for(first, gone)
    error = first.error
    what = f"failed: {error.text} at {error.at}" if error is not None else how or _ended(first.code or 1)
    others = [f"  {rank.whereabouts()}" for rank in ranks if rank is not first and not rank.has_ended]
    return first, (
        f"rank {first.number} {what}; all ranks were stopped",
        *(f"  {line}" for line in (() if error is None else error.hints)),
        *(["The others were in:", *others] if others else ()),
    )


def _ended(code: int) -> str:
    return f"was ended by {Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
