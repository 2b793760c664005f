"""State that replicas change and the model never sees: DP301, DP305."""

from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence, Probe, StateChange
from dpdemo.checking.failing import failed_through
from dpdemo.checking.looking import forward_place, listed
from dpdemo.checking.readers import is_for_outside, is_read_by_none, reader_outside
from dpdemo.checking.registry import Found, note_of_all, rule
from dpdemo.checking.rewriting.aftercall import (
    change_outside,
    kept_outside,
    made_before,
    mode_outside,
    reads_of,
    statement_outside,
)
from dpdemo.checking.rewriting.inplace import buffer_in_place
from dpdemo.checking.statechanges import changes_of, is_of_data, is_off, lost_in
from dpdemo.checking.unregistered import questions_for_parameters


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
        yield note_of_all(
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
        return before, f"{after}   # by hand: outside, of the rows that forward then returns for it"
    after = f"{statement_outside(change)}   # by hand: outside, of the rows that forward then returns for it"
    return change.written, after
