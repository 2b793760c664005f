"""Containers that all replicas write to: DP309."""

import re
from collections.abc import Iterator, Sequence

from dpdemo.checking.evidence import Call, Evidence, Probe, StateChange
from dpdemo.checking.failing import placed_in_forward
from dpdemo.checking.looking import crossed_devices, forward_place, listed
from dpdemo.checking.looking import is_off as is_wrong
from dpdemo.checking.registry import Found, note_of_all, rule
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.aftercall import (
    change_outside,
    reads_of,
    statement_outside,
)
from dpdemo.checking.rewriting.hooking import attribute_filled, kept_by_gpu, keys_read_in_vain
from dpdemo.checking.rewriting.hooklists import list_by_gpu
from dpdemo.checking.rewriting.memoised import moved_where_called
from dpdemo.checking.rewriting.own_containers import (
    copied_at_each_call,
    emptied_at_each_call,
    is_by_gpu_in,
    made_where_reset,
)
from dpdemo.checking.rewriting.shared import globals_outside
from dpdemo.checking.rewriting.stacking import (
    emptied_first,
    filled_and_emptied,
    kept_in_a_local,
    returned_beside,
)
from dpdemo.checking.rewriting.ties import cached_by_gpu, moved_where_read
from dpdemo.checking.source import class_at
from dpdemo.checking.statechanges import changes_of, lost_in
from dpdemo.reports.check import Severity


@rule("DP309", "shared-container", "error", unless=("DP311",))
def shared_container(evidence: Evidence) -> Iterator[Found]:
    """A list or dict on `self` is shared by all replicas.

    What happens: each replica appends to the same list, in the order of threads; in a dict each overwrites
        what the others stored, and reads tensors that lie on another's GPU. A list or a count of a class
        or the file grows with each replica, too: that is a warning where results are right.
    Why: replicas are shallow copies: their attributes are the same objects, used by n threads at once.
    Before: self.features.append(h)   # in forward
    After: return y, h                # return it: gather joins the replicas'
    Seen by: a container that a forward under DataParallel changes, or that it fills and empties again.
    References: pytorch/pytorch#15993, pytorch/pytorch#128272
    """
    harmless: dict[str, tuple[Probe, StateChange]] = {}
    by_hooks: dict[Repair, list[tuple[Probe, StateChange]]] = {}
    in_vain = keys_read_in_vain(evidence)
    placed = placed_in_forward(evidence)  # that is DP302
    changed = [
        (probe, change)
        for probe, change in changes_of(evidence, "container")
        if change.parallel_changed and change.path not in placed
    ]
    yield from _stacks(evidence, {change.path for _, change in changed})
    together = {path: paths for paths in evidence.scan.together for path in paths}
    for probe, change in changed:
        paths = together.get(change.path, (change.path,))
        if change.path != paths[0] and any(one.path == paths[0] for _, one in changed):
            continue  # another name of the same
        if change.harmless:
            harmless.setdefault(change.path, (probe, change))
            continue
        hooked = _in_a_hook(change, evidence, probe.call)
        if hooked is not None and in_vain:
            continue  # a replica has none of what the hook keeps: that is DP310
        if hooked is not None:
            by_hooks.setdefault(hooked, []).append((probe, change))
            continue
        yield _written_by_all(paths, probe, change, evidence)
    yield from _kept_by_hooks(by_hooks)
    yield from _outer(evidence)
    yield from _memoised(evidence)
    if harmless:
        yield note_of_all(
            harmless, "shared by all replicas, each of which writes an entry of its own, or the same"
        )


def _written_by_all(paths: Sequence[str], probe: Probe, change: StateChange, evidence: Evidence) -> Found:
    """Tell of a container that all replicas write to, with the first repair that there is for it."""
    last = change.path.rpartition(".")[2]
    own = (
        _made_anew(paths, change, evidence)
        or _emptied_first(change, evidence)
        or made_where_reset(paths, change, evidence)
        or cached_by_gpu(change, evidence)
        or _moved_to_each(change, evidence)
        or change_outside(change, evidence, probe.call, lost_in(probe))
        or _returned(change, evidence, probe.call)
    )
    return Found(
        change.path,
        f"{_called(paths)} written by all replicas at once: {change.single} after a call on one GPU, "
        f"{change.parallel} under DataParallel",
        change.place,
        probe,
        before=change.written or f"self.{last}...   # written in forward",
        after="return ..., value   # by hand; and outside, with what was gathered: "
        + (statement_outside(change) if change.written else f"model.module.{change.path}..."),
        set_at=change.place,
        repair=own,
    )


def _kept_by_hooks(found: dict[Repair, list[tuple[Probe, StateChange]]]) -> Iterator[Found]:
    """Tell of what hooks fill, once for each line that does."""
    for own, filled in found.items():
        names = list(dict.fromkeys(change.path for _, change in filled))
        probe, first = filled[0]
        what = f"{first.single} after a call on one GPU, {first.parallel} under DataParallel"
        verb = "is" if len(names) == 1 else "are"
        told = f"{listed(names)} {verb} written by all replicas at once: {what}"
        yield Found(",".join(names), told, first.place, probe, set_at=first.place, repair=own)


def _outer(evidence: Evidence) -> Iterator[Found]:
    """Tell of lists and counts of a class or a file: an error where results are wrong for them."""
    for probe, change in changes_of(evidence, "outer"):
        what = f"`{change.path}` grows by {change.single} in a call on one GPU, by {change.parallel} here"
        own = globals_outside(evidence, probe.call)
        severity: Severity = "error" if is_wrong(probe) else "warning"
        yield Found(change.path, f"{what}: each replica writes to it", None, probe, severity, repair=own)


def _memoised(evidence: Evidence) -> Iterator[Found]:
    """Tell of functions that keep the tensors which the first replica has made."""
    for name, place, own in moved_where_called(evidence):
        what = f"`{name}` keeps what it gives by its arguments alone: a replica gets what is on another's GPU"
        yield Found(name, what, place, next(crossed_devices(evidence))[0], repair=own)


def _called(paths: Sequence[str]) -> str:
    """Begin a sentence about what modules hold, by one path or several."""
    return f"{listed(list(paths))} {'is' if len(paths) == 1 else 'are one object, which is'}"


def _stacks(evidence: Evidence, told: set[str]) -> Iterator[Found]:
    """Tell of containers that are as before when a call is over, and that replicas meet at meanwhile."""
    ran = next(
        (probe for probe in evidence.probes if len(probe.call.replicas if probe.call else ()) > 1), None
    )
    seen = {path for paths in evidence.meanwhile for path in paths}
    for paths in evidence.meanwhile if ran else ():
        if not told.intersection(paths) and not is_by_gpu_in(paths[0], forward_place(evidence)):
            place = next((one.place for one in evidence.scan.held if one.path in paths), None)
            yield Found(
                ",".join(paths),
                f"{_called(paths)} filled and emptied by all replicas at once: one may take what another has "
                "put there",
                place or forward_place(evidence),
                ran,
                repair=_locally(paths, evidence) or copied_at_each_call(paths, evidence),
                set_at=place,
            )
    for held in evidence.scan.of_kind("container"):
        forward = filled_and_emptied(held) if ran and held.path not in {*told, *seen} else None
        if forward is not None and not is_by_gpu_in(held.path, forward_place(evidence)):
            own = kept_in_a_local(held, forward)
            yield Found(
                held.path,
                f"`{held.path}` is filled and emptied by all replicas at once: one may take what another has "
                "put there",
                held.place,
                ran,
                repair=own,
                set_at=held.place,
            )


def _made_anew(paths: Sequence[str], change: StateChange, evidence: Evidence) -> Repair | None:
    """Write what parts of the model hand each other in, empty before a call, as one of each call."""
    is_empty = re.fullmatch(r"an? (?!defaultdict)\w+ of 0", change.before) is not None
    return emptied_at_each_call(paths, evidence) if is_empty and len(paths) > 1 else None


def _emptied_first(change: StateChange, evidence: Evidence) -> Repair | None:
    """Write what a method empties before it fills it as a container of each call's own."""
    held = (one for one in evidence.scan.of_kind("container") if one.path == change.path)
    return next((own for one in held if (own := emptied_first(one)) is not None), None)


def _locally(paths: tuple[str, ...], evidence: Evidence) -> Repair | None:
    """Write forward with a container of its own, in the place of one that it alone has to do with."""
    held = [one for one in evidence.scan.of_kind("container") if one.path in paths]
    forward = filled_and_emptied(held[0]) if len(held) == len(paths) == 1 else None
    return kept_in_a_local(held[0], forward) if forward is not None else None


def _returned(change: StateChange, evidence: Evidence, call: Call | None) -> Repair | None:
    """Write what forward collects in a list on `self` as a part of its result."""
    held = (one for one in evidence.scan.of_kind("container") if one.path == change.path)
    return next((own for one in held if call and (own := returned_beside(one, call)) is not None), None)


def _moved_to_each(change: StateChange, evidence: Evidence) -> Repair | None:
    """Write where forward reads tensors that another replica may have put there, moved to its own GPU."""
    if not any(crossed_devices(evidence)):
        return None
    held = (one for one in evidence.scan.of_kind("tensor") if one.path == change.path)
    return next((repair_of(changes) for one in held if (changes := moved_where_read(one, evidence))), None)


def _in_a_hook(change: StateChange, evidence: Evidence, call: Call | None) -> Repair | None:
    """Write the line of a hook that keeps outputs in a container, and one that keeps each GPU's.

    Where methods read what it keeps, they read it by GPU too; else it is joined after the call.
    """
    path = change.path
    name, kind = f".{path.rpartition('.')[2]}[", re.match(r"an? (\w+) \(", change.single)
    for hook in evidence.scan.of_kind("hook"):
        if kind is not None and class_at(hook.place) == kind[1]:  # an object's, whose hook it is
            changes = kept_by_gpu(hook.place, evidence)
        else:
            changes = kept_by_gpu(hook.place, evidence, call, path)
            is_it = attribute_filled(hook.place).endswith(f".{path.rpartition('.')[2]}")
            changes = changes if is_it or any(name in one.before for one in changes) else ()
        if changes:
            return repair_of(changes)
    if reads_of(forward_place(evidence), path.rpartition(".")[2]):
        lists = (list_by_gpu(hook.place, evidence) for hook in evidence.scan.of_kind("hook"))
        return repair_of(next((changes for changes in lists if changes), ()))
    return None
