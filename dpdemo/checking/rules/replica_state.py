"""State that replicas change and the model never sees: DP301, DP305 to DP307."""

from collections.abc import Iterable, Iterator

from dpdemo.checking.evidence import Evidence, Norm, Probe, StateChange
from dpdemo.checking.fills import after_the_call, swapped
from dpdemo.checking.questions.results import is_off
from dpdemo.checking.questions.state import (
    STATISTICS,
    Change,
    by_cause,
    changes_of,
    gets_other_data,
    place_of,
    synchronised,
)
from dpdemo.checking.questions.words import article, listed, words
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import Advice, Hit, advise
from dpdemo.results.findings import Severity


@rule("DP301", "lost-state", "error", of_training=True)
def lost_state(evidence: Evidence) -> Iterator[Hit]:
    """Attributes that forward sets on `self` are lost.

    What happens: counters stay at zero, remembered features stay None, `self.w = Parameter(...)` does not
        stay.
    Why: forward runs in replicas, made anew for each call and thrown away after it.
    Before: self.steps += 1                 # in forward
    After: return y, features               # return it, or change it outside, on `dp.module`
    Seen by: an attribute that a forward on one GPU changes and one under DataParallel does not. A note where
        nothing that forward computes depends on it; a warning where autograd follows it, as a loss.
    References: pytorch/pytorch#2864, pytorch/pytorch#5958
    """
    shared = {change.path for _, change in changes_of(evidence, "container") if change.parallel_changed}
    harmless: dict[str, Change] = {}
    for probe, change in changes_of(evidence, "attribute", "mode", "module", "parameter", "container"):
        if change.path in shared or not change.is_lost or _is_told_elsewhere(change, probe):
            continue
        is_wanted = change.is_left and change.kind == "attribute"
        if change.harmless and not is_wanted:
            harmless.setdefault(change.path, (probe, change))
            continue
        severity: Severity | None = "warning" if change.kind == "mode" or change.harmless else None
        what = _told(change) + _FOLLOWED * change.harmless
        advice = _outside(change, probe.batch_size)
        about = ("assigned", f"assigned {change.path}") if change.kind == "parameter" else ()
        place = place_of(change)
        yield Hit(change.path, what, place, probe, severity, advice, change.place, symptoms=about)
    yield from note_of_all(harmless, _UNNEEDED)


_UNNEEDED = "set in forward and lost with the replicas: nothing that forward computes needs it"
_FOLLOWED = "; autograd follows it, as a loss that is read after the call"


def note_of_all(harmless: dict[str, Change], what: str) -> Iterator[Hit]:
    """Make one note of all state that nothing depends on."""
    for probe, first in list(harmless.values())[:1]:
        paths = list(harmless)
        told = f"{listed(paths)} {'is' if len(paths) == 1 else 'are'} {what}"
        yield Hit("harmless", told, first.place, probe, "info")


def _told(change: StateChange) -> str:
    """Describe the change of an attribute; two tensors of one shape differ in their numbers."""
    if change.before == change.single:
        return (
            f"`{change.path}`, {words(change.before)}, gets other numbers on one GPU, and none under "
            "DataParallel"
        )
    return (
        f"`{change.path}` goes from {words(change.before)} to {words(change.single)} on one GPU, and stays "
        f"{words(change.parallel)} under DataParallel"
    )


def _outside(change: StateChange, rows: int) -> Advice:
    """Advise the statement behind the call, where it reads `self` alone; else to return what has rows."""
    if change.kind == "mode":
        module = f"model.module.{change.path}".removesuffix(".training")
        return advise("{module}.eval()   # outside of forward", module=module)
    after = "y = {call}\nmodel.module.{path} = ...   # after the call; forward may take it as an argument"
    if change.kind == "buffer":
        after = """y = {call}   # forward returns the rows that it is made of
model.module.{path} = ...   # after the call, of all of them"""
    elif change.single.shape is not None and change.single.shape[:1] == (rows,):
        after = """return y, value   # in forward; and after the call, on what was gathered:
model.module.{path} = value"""
    return advise(after, fill=after_the_call if change.written.stands_alone else None, path=change.path)


def _is_told_elsewhere(change: StateChange, probe: Probe) -> bool:
    """Return whether another finding is about it: of a module around this one, or of another rule."""
    if change.kind == "mode":
        return _is_below(change, probe)
    if change.single.text == "True" and any(change.kind == "hooks" for change in probe.changes):
        return True  # it notes that the hooks are there
    return (change.before.is_absent or change.is_followed) and _is_made_of_parameters(change, probe)


def _is_made_of_parameters(change: StateChange, probe: Probe) -> bool:
    """Return whether forward changes a parameter of such a module, and makes of it what is new there."""
    changed = {
        change.path.rpartition(".")[0]
        for change in probe.changes
        if change.kind == "parameter" and (gets_other_data(change) or change.parallel_changed)
    }
    made = {
        change.path.rpartition(".")
        for change in probe.changes
        if change.before.is_absent or change.is_followed
    }
    names = {name for module, _, name in made if module in changed}
    return change.kind == "attribute" and change.name in names


def _is_below(change: StateChange, probe: Probe) -> bool:
    """Return whether a module around this one changes its mode too, which is then what forward has called."""
    path = change.path.rpartition(".")[0]
    others = [change.path.rpartition(".")[0] for change in probe.changes if change.kind == "mode"]
    return any(path != other and (not other or path.startswith(f"{other}.")) for other in others)


@rule("DP305", "buffer", "error", of_training=True)
def buffer(evidence: Evidence) -> Iterator[Hit]:
    """A buffer is updated by the first chunk only, or not at all.

    What happens: a running average, a queue or a counter in a buffer follows chunk 0 and ignores the
        others; a buffer that is assigned anew (`self.b = ...`) does not change at all.
    Why: replica 0 holds the model's own buffers, the others hold copies; and assigning replaces the
        replica's.
    Before: self.mean = 0.9 * self.mean + 0.1 * y.mean(0)   # in forward
    After: model.module.update(y)                           # after the call, on the gathered y
    Seen by: the buffer differs from that of a run on one GPU, and equals that of a run on chunk 0 alone.
        Where forward draws random numbers, chunk 1 with the same numbers leaves another.
    References: pytorch/pytorch#1051, pytorch/pytorch#11476
    """
    missed = (pair for pair in changes_of(evidence, "buffer") if _is_missed(*pair))
    by_module, harmless = by_cause(
        missed, lambda _, change: (change.path.rpartition(".")[0], change.parallel_changed)
    )
    for found in by_module:
        changes = {change.path: change for _, change in reversed(found)}
        subject, what = ",".join(sorted(changes)), _told_of(changes.values())
        change = changes[found[0][1].path]
        for probe in {id(probe): probe for probe, _ in found}.values():
            advice = _of_buffer(change, probe, evidence)
            yield Hit(subject, what, place_of(change), probe, None, advice, change.place)
    yield from note_of_all(harmless, _UNNEEDED)


def _is_missed(probe: Probe, change: StateChange) -> bool:
    """Whether a buffer is known to miss chunks, for all the random numbers that forward may draw."""
    if change.same or change.name in {*STATISTICS, "num_batches_tracked"}:
        return False
    if not change.parallel_changed and probe.call and probe.call.errors:
        return False  # replica 0 may not have come to it
    if probe.single.used_random:
        return change.follows_rows and (change.like_first_chunk or not change.parallel_changed)
    return True


def _of_buffer(change: StateChange, probe: Probe, evidence: Evidence) -> Advice:
    """Advise a call of the module itself for an observer of a library; else the statement behind the call."""
    kinds = dict(evidence.scan.module_types)
    if kinds.get(change.path.rpartition(".")[0], "").endswith(("Observer", "FakeQuantize")):
        return advise("{plain}   # while it observes: the module itself, on one GPU", before="{call}")
    return _outside(change, probe.batch_size)


def _told_of(alike: Iterable[StateChange]) -> str:
    """Describe what becomes of buffers that one line updates."""
    changes = sorted(alike, key=lambda change: change.path)
    change, names = changes[0], listed([change.path for change in changes])
    if not change.parallel_changed:
        what = f"buffer {names} changes" if len(changes) == 1 else f"buffers {names} change"
        it = "it" if len(changes) == 1 else "them"
        return (
            f"the {what} on one GPU and not under DataParallel: forward assigns {it} anew, and what the "
            "replicas hold is thrown away"
        )
    why = "what chunk 0 alone gives" if change.like_first_chunk else "what replica 0 alone writes"
    if len(changes) > 1:
        return f"the buffers {names} end otherwise than on one GPU: they are {why}"
    return f"the buffer {names} ends as {words(change.parallel)} where one GPU has other numbers: it is {why}"


@rule("DP306", "batchnorm-statistics", "warning", explains=(), of_training=True)
def batchnorm_statistics(evidence: Evidence) -> Iterator[Hit]:
    """BatchNorm takes its statistics a chunk at a time, and keeps those of chunk 0.

    What happens: in training each replica normalises with the mean of its own chunk, and the running
        statistics follow
        GPU 0's chunk. Results differ from one GPU's, the more so the smaller the chunks.
    Why: replicas do not talk to each other, and only replica 0 holds the model's own buffers.
    Before: nn.BatchNorm2d(64)
    After: nn.GroupNorm(8, 64)   # or a larger batch, or DistributedDataParallel with SyncBatchNorm
    Seen by: running statistics that differ from those of a run on one GPU.
    References: pytorch/pytorch#1051, pytorch/pytorch#2584, pytorch/pytorch#24391
    """
    yield from _clamped(evidence)
    kinds = dict(evidence.scan.module_types)
    norms = {norm.path: norm for norm in evidence.scan.norms}
    for probe, change in changes_of(evidence, "buffer"):
        path = change.path.rpartition(".")[0]
        norm = norms.get(path)
        if norm is not None and norm.is_own and not change.like_first_chunk:
            continue  # one that synchronises its replicas
        if change.name in STATISTICS and not change.same and kinds.get(path) != "SyncBatchNorm":
            are_several = sum(kind == "BatchNorm" for kind in kinds.values()) > 1
            first = f"`{path}` and others" if are_several else f"`{path or change.module_type}`"
            largest = probe.split.largest if probe.split else probe.batch_size
            what = (
                f"{first}: statistics are taken over chunks of {largest} instead of {probe.batch_size} "
                "samples, and the running ones are those of chunk 0"
            )
            advice = _group_norm(norm)
            if norm is not None and norm.is_told:
                kind = article(norm.type)
                what += f"; {kind} synchronises replicas that were told of each other, and these were not"
                advice = advise(
                    "patch_replication_callback(dp)   # of the same package; or its DataParallelWithCallback",
                    before="dp = nn.DataParallel(model)",
                )
            yield Hit("BatchNorm", what, norm.place if norm else None, probe, advice=advice)


def _clamped(evidence: Evidence) -> Iterator[Hit]:
    """Report norms with whole-batch statistics where results still differ from one GPU's."""
    for probe in evidence.probes:
        norms = synchronised(evidence, probe)
        if norms and is_off(probe):
            names, verb = listed([norm.path for norm in norms]), "take" if len(norms) > 1 else "takes"
            gap = probe.comparison.largest_difference
            differing = f"results differ by up to {gap:.2g}" if gap else "gradients differ"
            what = (
                f"{names} {verb} statistics over the whole batch, and {differing} from one GPU's: for "
                "several replicas the variance is clamped to eps, where a plain call adds eps to it"
            )
            explains = (f"difference of {probe}",)
            yield Hit("clamp", what, norms[0].place, probe, "info", explains=explains)


def _group_norm(norm: Norm | None) -> Advice | None:
    """Advise a normalisation of each sample, with about eight channels in a group or more."""
    if norm is None:
        return None
    groups = next(
        number
        for number in (8, 4, 2, 1)
        if (norm.channels % number == 0 and norm.channels > number) or number == 1
    )
    layer = r"\b(nn\.)?(?:Sync)?BatchNorm(?:1d|2d|3d)?\({channels}\)"
    return advise(
        "nn.GroupNorm({groups}, {channels})", before="nn.{type}({channels})",
        fill=swapped(layer, r"\1GroupNorm({groups}, {channels})"),
        type=norm.type, channels=f"{norm.channels}", groups=f"{groups}",
    )  # fmt: skip


@rule("DP307", "sync-batchnorm", "warning", explains=())
def sync_batchnorm(evidence: Evidence) -> Iterator[Hit]:
    """SyncBatchNorm synchronises nothing under DataParallel.

    What happens: it works as plain BatchNorm, without a word: each replica normalises with its own chunk.
    Why: it synchronises only between processes of torch.distributed, and DataParallel is one process.
    Before: nn.DataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model))
    After: DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model))
    Seen by: a SyncBatchNorm in the model.
    References: PatrickHua/SimSiam#24
    """
    norms = {norm.path: norm for norm in evidence.scan.norms}
    for path, kind in evidence.scan.module_types:
        if kind == "SyncBatchNorm":
            what = f"`{path}` is a SyncBatchNorm: here it works as plain BatchNorm"
            norm = norms.get(path)
            yield Hit("SyncBatchNorm", what, norm.place if norm else None, advice=_group_norm(norm))
