"""Containers that all replicas write to: DP309."""

import re
from collections.abc import Iterator, Sequence

from dpdemo.checking.evidence import Cache, Evidence, Probe, RaisedError, StateChange
from dpdemo.checking.questions.failures import crossed_devices
from dpdemo.checking.questions.state import by_cause, changes_of, place_of
from dpdemo.checking.questions.words import listed, words
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import Hit, advise
from dpdemo.checking.rules.replica_state import note_of_all

_EMPTY = {"list": "[]", "dict": "{}", "set": "set()", "OrderedDict": "{}", "defaultdict": "{}"}
_OWN = "{name} = {empty}   # in forward, one for each call; return what must stay"


@rule("DP309", "shared-container", "error", explains=("raises", "devices", "difference"), of_training=True)
def shared_container(evidence: Evidence) -> Iterator[Hit]:
    """A list or dict on `self` is shared by all replicas.

    What happens: each replica appends to the same list, in the order of threads; in a dict each overwrites
        what the others stored, and reads tensors that lie on another's GPU.
    Why: replicas are shallow copies: their attributes are the same objects, used by n threads at once.
    Before: self.features.append(h)   # in forward
    After: return y, h                # return it: gather joins the replicas'
    Seen by: a container that a forward under DataParallel changes, or that it fills and empties again; and a
        dict of a class or file that keeps tensors, where a replica mixes devices. Counts and lists there are
        not looked at.
    References: pytorch/pytorch#15993, pytorch/pytorch#128272
    """
    yield from _caches(evidence)
    changed = [
        (probe, change)
        for probe, change in changes_of(evidence, "container")
        if change.parallel_changed and not _is_met_at(change, evidence)
    ]
    known = {change.path for _, change in changed}
    yield from _used_meanwhile(evidence, known)
    together = {path: paths for paths in evidence.scan.together for path in paths}
    first = {path: paths[0] for path, paths in together.items()}  # of several names of the same
    changed = [
        (probe, change)
        for probe, change in changed
        if first.get(change.path, change.path) not in known - {change.path}
    ]
    by_line, harmless = by_cause(
        changed, lambda probe, change: (change.written.place or change.path, str(probe))
    )
    for found in by_line:
        held = dict.fromkeys(
            path for _, change in found for path in together.get(change.path, (change.path,))
        )
        yield _written_by_all(list(held), *found[0])
    yield from note_of_all(
        harmless, "shared by all replicas, each of which writes an entry of its own, or the same"
    )


def _is_met_at(change: StateChange, evidence: Evidence) -> bool:
    """Whether replicas can wait for each other there, and leave no list longer than it was."""
    before, after = [change.before, *(part for _, part in change.before.parts)], change.single
    grown = any(
        was.length is not None and was.length < (other.length or 0) and other.type in _APPENDED
        for was, other in zip(before, [after, *(part for _, part in after.parts)], strict=False)
    )
    return change.path in evidence.scan.meetings and not grown


_APPENDED = ("list", "deque", "set")


def _written_by_all(paths: Sequence[str], probe: Probe, change: StateChange) -> Hit:
    """Report containers that all replicas write to."""
    what = (
        f"{_called(paths)} written by all replicas at once: {words(change.single)} after a call on one GPU, "
        f"{words(change.parallel)} under DataParallel"
    )
    kind = change.single.type
    if kind in {"dict", "OrderedDict", "defaultdict"} and "[" in change.written.text.partition("=")[0]:
        advice = advise("self.{name}[(key, {x}.device)]   # an entry of each GPU's own", name=change.name)
    else:
        advice = advise(_OWN, name=change.name, empty=_EMPTY.get(kind, "..."))
    return Hit(change.path, what, place_of(change), probe, advice=advice, set_at=change.place)


def _called(paths: Sequence[str]) -> str:
    """Begin a sentence about what modules hold, by one path or several."""
    return f"{listed(list(paths))} {'is' if len(paths) == 1 else 'are one object, which is'}"


def _used_meanwhile(evidence: Evidence, told: set[str]) -> Iterator[Hit]:
    """Report containers that are as before when a call is over, and that replicas meet at meanwhile."""
    ran = next((probe for probe in evidence.probes if probe.call and len(probe.call.replicas) > 1), None)
    known = {*told, *evidence.scan.meetings}
    for paths in evidence.meanwhile if ran else ():
        if not known.intersection(paths):
            place = next((item.place for item in evidence.scan.held if item.path in paths), None)
            what = (
                f"{_called(paths)} filled and emptied by all replicas at once: one may take what another "
                "has put there"
            )
            advice = advise(_OWN, name=paths[0].rpartition(".")[2], empty="[]")
            yield Hit(",".join(paths), what, place or evidence.scan.forward, ran, None, advice, place)


def _caches(evidence: Evidence) -> Iterator[Hit]:
    """Report tensors that are kept outside of the model for all GPUs, where a replica has mixed devices."""
    told = set()
    for probe, error in crossed_devices(evidence):
        for cache in evidence.caches:
            if cache.name not in told and _is_named(cache, error):
                told.add(cache.name)
                is_keyed = cache.kind.startswith(("a dict", "a function"))
                how = "by keys that do not name their GPU" if is_keyed else "for all GPUs"
                what = (
                    f"`{cache.name}`, {cache.kind}, keeps tensors {how}: a replica gets those that are on "
                    f"another's ({error})"
                )
                key = "{name}[(key, {x}.device)]   # a key that names the GPU, where it is read and written"
                advice = advise(key, name=cache.name)
                yield Hit(cache.name, what, error.place, probe, advice=advice)


def _is_named(cache: Cache, error: RaisedError) -> bool:
    """Whether the functions that an exception went through name a cache, or a function that does."""
    names = "|".join(map(re.escape, [cache.name, *(cache.users - {"forward", "__init__", "<lambda>"})]))
    return re.search(rf"\b({names})\b", error.source) is not None
