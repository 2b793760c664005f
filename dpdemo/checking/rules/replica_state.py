"""State that replicas change and the model never sees: DP301, DP305, DP309."""

import re
from collections.abc import Iterator, Sequence

from dpdemo.checking.evidence import Call, Evidence, Probe, StateChange
from dpdemo.checking.failing import failed_through, placed_in_forward
from dpdemo.checking.looking import crossed_devices, forward_place, listed
from dpdemo.checking.looking import is_off as is_wrong
from dpdemo.checking.readers import is_for_outside, is_read_by_none, reader_outside
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.aftercall import (
    change_outside,
    changes_of,
    is_of_data,
    is_off,
    kept_outside,
    lost_in,
    made_before,
    mode_outside,
    reads_of,
    statement_outside,
)
from dpdemo.checking.rewriting.hooking import attribute_filled, kept_by_gpu, keys_read_in_vain
from dpdemo.checking.rewriting.hooklists import list_by_gpu
from dpdemo.checking.rewriting.inplace import buffer_in_place
from dpdemo.checking.rewriting.own_containers import copied_at_each_call, emptied_at_each_call, is_by_gpu_in
from dpdemo.checking.rewriting.shared import globals_outside
from dpdemo.checking.rewriting.stacking import (
    emptied_first,
    filled_and_emptied,
    kept_in_a_local,
    returned_beside,
)
from dpdemo.checking.rewriting.ties import cached_by_gpu, moved_where_read
from dpdemo.checking.source import class_at
from dpdemo.checking.unregistered import questions_for_parameters
from dpdemo.reports.check import Severity


@rule("DP301", "lost-state", "error")
def lost_state(evidence: Evidence) -> Iterator[Found]:
    """What forward writes to `self` is lost.

    What happens: counters stay at zero, remembered features stay None, `self.w = Parameter(...)` does not
        stay.
    Why: forward runs in replicas, made anew for each call and thrown away after it.
    Before: self.steps += 1                 # in forward
    After: return y, features               # return it, or change it outside, on `dp.module`
    Seen by: an attribute that a forward on one GPU changes and one under DataParallel does not.
    References: pytorch/pytorch#2864, pytorch/pytorch#5958
    """
    shared = {change.path for _, change in changes_of(evidence, "container") if change.parallel_changed}
    harmless: dict[str, tuple[Probe, StateChange]] = {}
    if failed_through(evidence):
        return  # what a replica sets is there for its own parts: that is DP304
    for probe, change in changes_of(evidence, "attribute", "mode", "module", "parameter", "container"):
        if change.path in shared or not change.single_changed or change.parallel_changed:
            continue  # DP309 tells of what is shared
        if _is_told_elsewhere(change, probe):
            continue
        reader = reader_outside(change, evidence) if change.harmless else ""
        is_left = change.harmless and is_read_by_none(change, evidence, probe.batch_size)
        is_wanted = bool(reader) or is_left or is_for_outside(change, forward_place(evidence))
        if change.harmless and not is_wanted:
            harmless.setdefault(change.path, (probe, change))
            continue
        is_short = change.kind in ("mode", "module")
        own = None if is_short else change_outside(change, evidence, probe.call, lost_in(probe))
        if own is None and change.kind == "attribute":
            own = kept_outside(change, evidence, probe.call, probe.changes)
        if change.kind == "module" and probe.call is not None:
            own = made_before(change, evidence, probe.call)
        if change.kind == "mode":
            own = mode_outside(change, evidence, probe.call)
        before, after = _state_repair(change, evidence)
        yield Found(
            change.path,
            _told(change) + (f", where `{reader}` reads it" if reader else _ALONE * is_left),
            change.place,
            probe,
            "warning" if change.kind == "mode" or change.harmless else None,
            before,
            after,
            change.place,
            own,
        )
    if harmless:
        yield _told_once(
            harmless, "set in forward and lost with the replicas: nothing that forward computes needs it"
        )


_ALONE = "; nothing here reads it, and what does so elsewhere finds nothing"


def _told(change: StateChange) -> str:
    """Say what becomes of an attribute here and there; two tensors of one shape differ in their numbers."""
    if change.before == change.single:
        return f"`{change.path}`, {change.before}, gets other numbers on one GPU, and none under DataParallel"
    return (
        f"`{change.path}` goes from {change.before} to {change.single} on one GPU, and stays "
        f"{change.parallel} under DataParallel"
    )


def _is_told_elsewhere(change: StateChange, probe: Probe) -> bool:
    """Return whether another finding is about it: of a module around this one, or of another rule."""
    match change.kind:
        case "mode":
            return _is_below(change, probe)
        case "parameter":  # that is DP308, or DP313
            return any(map(questions_for_parameters, probe.calls)) or is_of_data(change)
    if change.single == "True" and any(one.kind == "hooks" for one in probe.changes):
        return True  # it says that the hooks are there: that is DP317
    return change.before == "absent" and _is_made_of_parameters(change, probe)


def _is_made_of_parameters(change: StateChange, probe: Probe) -> bool:
    """Return whether forward changes a parameter of such a module, and makes of it what is new there."""
    changed = {
        one.path.rpartition(".")[0]
        for one in probe.changes
        if one.kind == "parameter" and (is_of_data(one) or one.parallel_changed)
    }
    made = {one.path.rpartition(".") for one in probe.changes if one.before == "absent"}
    names = {name for module, _, name in made if module in changed}
    return change.kind == "attribute" and change.path.rpartition(".")[2] in names


def _is_below(change: StateChange, probe: Probe) -> bool:
    """Return whether a module around this one changes its mode too, which is then what forward has called."""
    path = change.path.rpartition(".")[0]
    others = [one.path.rpartition(".")[0] for one in probe.changes if one.kind == "mode"]
    return any(path != other and (not other or path.startswith(f"{other}.")) for other in others)


def _told_once(harmless: dict[str, tuple[Probe, StateChange]], what: str) -> Found:
    """Make one note of all that nothing depends on."""
    probe, first = next(iter(harmless.values()))
    names = list(harmless)
    text = f"{listed(names)} {'is' if len(names) == 1 else 'are'} {what}"
    return Found("harmless", text, first.place, probe, "info")


def _state_repair(change: StateChange, evidence: Evidence) -> tuple[str, str]:
    name, last = change.path, change.path.rpartition(".")[2]
    if change.kind == "mode":
        module = f"model.module.{name}".removesuffix(".training")
        return f"{module.removeprefix('model.')} changes its mode in forward", f"{module}.eval()   # outside"
    before = change.written or f"self.{last} = value   # in forward"
    if change.kind == "attribute" and reads_of(forward_place(evidence), last):
        return (
            before,
            f"return ..., {last}   # by hand: a row for each sample; forward({last}=...) takes it next time",
        )
    return before, f"return ..., {last}   # by hand; and outside: model.module.{name} = {last}"


@rule("DP305", "buffer", "error")
def buffer(evidence: Evidence) -> Iterator[Found]:
    """A buffer is updated by the first chunk only, or not at all.

    What happens: a running average, a queue or a counter in a buffer follows chunk 0 and ignores the
        others; a buffer that is assigned anew (`self.b = ...`) does not change at all.
    Why: replica 0 holds the model's own buffers, the others hold copies; and assigning replaces the
        replica's.
    Before: self.mean = 0.9 * self.mean + 0.1 * y.mean(0)   # in forward
    After: model.module.update(y)                           # after the call, on the gathered y
    Seen by: the buffer differs from that of a run on one GPU, and equals that of a run on chunk 0 alone.
    References: pytorch/pytorch#1051, pytorch/pytorch#11476
    """
    told: set[tuple[int, str]] = set()
    for probe, change in changes_of(evidence, "buffer"):
        if not is_off(change) or probe.single.used_random or (id(probe), change.path) in told:
            continue
        if not change.parallel_changed and _has_raised(probe):
            continue  # replica 0 may not have come to it
        others = lost_in(probe)
        own = change_outside(change, evidence, probe.call, others)
        if change.before == "absent" and probe.call is not None:
            own = made_before(change, evidence, probe.call)
        own = own or buffer_in_place(change, evidence, probe.call)
        alike = [change]
        for one in others:
            its = change_outside(one, evidence, probe.call, others) if one.kind == "buffer" else None
            if its is not None and one is not change and its == own:
                alike.append(one)
        told |= {(id(probe), one.path) for one in alike}
        subject = ",".join(sorted(one.path for one in alike))
        what = _told_of(alike)
        before, after = _buffer_repair(change)
        yield Found(subject, what, change.place, probe, None, before, after, change.place, own)


def _has_raised(probe: Probe) -> bool:
    """Whether a replica did not come to the end of forward."""
    return probe.call is not None and any(one.raised is not None for one in probe.call.replicas)


def _told_of(alike: list[StateChange]) -> str:
    """Say what becomes of buffers that one line updates."""
    change, names = alike[0], listed([one.path for one in alike])
    if not change.parallel_changed:
        what = f"buffer {names} changes" if len(alike) == 1 else f"buffers {names} change"
        return (
            f"the {what} on one GPU and not under DataParallel: forward assigns "
            f"{'it' if len(alike) == 1 else 'them'} anew, and what the replicas hold is thrown away"
        )
    why = "what chunk 0 alone gives" if change.like_first_chunk else "what replica 0 alone writes"
    if len(alike) > 1:
        return f"the buffers {names} end otherwise than on one GPU: they are {why}"
    return f"the buffer {names} ends as {change.parallel} where one GPU has other numbers: it is {why}"


def _buffer_repair(change: StateChange) -> tuple[str, str]:
    last = change.path.rpartition(".")[2]
    if not change.written:
        before, after = f"self.{last} is updated in forward", f"model.module.{change.path}.copy_(...)"
        return before, f"{after}   # by hand: outside, of what forward then returns for it"
    after = f"{statement_outside(change)}   # by hand: outside, of what forward then returns for it"
    return change.written, after


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
    if harmless:
        yield _told_once(
            harmless, "shared by all replicas, each of which writes an entry of its own, or the same"
        )


def _written_by_all(paths: Sequence[str], probe: Probe, change: StateChange, evidence: Evidence) -> Found:
    """Tell of a container that all replicas write to, with the first repair that there is for it."""
    last = change.path.rpartition(".")[2]
    own = (
        _made_anew(paths, change, evidence)
        or _emptied_first(change, evidence)
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
