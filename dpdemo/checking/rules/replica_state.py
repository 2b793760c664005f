"""State that replicas change and the model never sees: DP301, DP305 to DP307, DP309, DP311, DP313."""

import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Event, Evidence, Probe, StateChange
from dpdemo.checking.lines import attribute_of
from dpdemo.checking.looking import listed
from dpdemo.checking.registry import Found, rule

_STATISTICS = ("running_mean", "running_var")
_BROADCAST_VIEW = r"Output \d+ of Broadcast(Backward)? is a view .*inplace"


def _changes(evidence: Evidence, *kinds: str) -> Iterator[tuple[Probe, StateChange]]:
    for probe in evidence.probes:
        if not _ran(probe):
            continue
        for change in probe.changes:
            if change.kind in kinds:
                yield probe, change


def _ran(probe: Probe) -> bool:
    """Return whether any replica came to run forward: a call that failed before says nothing about state."""
    call = probe.call
    return call is not None and any(replica.output is not None or replica.raised for replica in call.replicas)


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
    shared = {change.path for _, change in _changes(evidence, "container") if change.parallel_changed}
    harmless: dict[str, tuple[Probe, StateChange]] = {}
    for probe, change in _changes(evidence, "attribute", "mode", "module", "parameter", "container"):
        if change.path in shared or not change.single_changed or change.parallel_changed:
            continue  # DP309 tells of what is shared
        if change.kind == "mode" and _is_below(change, probe):
            continue
        if change.single == "True" and any(one.kind == "hooks" for one in probe.changes):
            continue  # it says that the hooks are there: that is DP317
        if change.kind == "parameter" and _asks_for_parameters(probe):
            continue  # that is DP308
        if change.harmless:
            harmless.setdefault(change.path, (probe, change))
            continue
        before, after = _state_repair(change)
        yield Found(
            change.path,
            f"`{change.path}` goes from {change.before} to {change.single} on one GPU, and stays "
            f"{change.parallel} under DataParallel",
            change.place,
            probe,
            "warning" if change.kind == "mode" else None,
            before,
            after,
        )
    if harmless:
        yield _told_once(
            harmless, "set in forward and lost with the replicas: nothing that forward computes needs it"
        )


def _asks_for_parameters(probe: Probe) -> bool:
    """Return whether forward went through parameters(), of which replicas have none."""
    return any(event.kind == "named_parameters" for call in probe.calls for event in call.events)


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


def _state_repair(change: StateChange) -> tuple[str, str]:
    name, last = change.path, change.path.rpartition(".")[2]
    if change.kind == "mode":
        module = f"model.module.{name}".removesuffix(".training")
        return f"{module.removeprefix('model.')} changes its mode in forward", f"{module}.eval()   # outside"
    if change.needs_self_only:
        return change.written, f"{_outside(change)}   # outside, after the call"
    before = change.written or f"self.{last} = value   # in forward"
    if change.kind == "module":
        return before, "model(...)   # once, plainly, before nn.DataParallel(model): then it is there"
    return before, f"return ..., {last}   # and outside: model.module.{name} = {last}"


def _outside(change: StateChange) -> str:
    """Write the line that changes state as it is written after the call, outside of forward."""
    module = attribute_of(change.owner, "model.module") if change.owner else "model.module"
    return re.sub(r"\bself\b", module, change.written)


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
    for probe, change in _changes(evidence, "buffer"):
        if change.path.rpartition(".")[2] in _STATISTICS or probe.single.used_random:
            continue
        if change.single_changed and not change.parallel_changed and not change.same:
            yield Found(
                change.path,
                f"the buffer `{change.path}` changes on one GPU and not under DataParallel: forward "
                "assigns it anew, "
                "and the replica that holds the new one is thrown away",
                change.place,
                probe,
                None,
                *_buffer_repair(change),
            )
        elif change.parallel_changed and not change.same:
            why = (
                "it is what chunk 0 alone gives"
                if change.like_first_chunk
                else "only replica 0 writes to the model's own"
            )
            yield Found(
                change.path,
                f"the buffer `{change.path}` ends as {change.parallel} where one GPU has other numbers: "
                f"{why}",
                change.place,
                probe,
                None,
                *_buffer_repair(change),
            )


def _buffer_repair(change: StateChange) -> tuple[str, str]:
    last = change.path.rpartition(".")[2]
    if not change.written:
        outside = f"model.module.{change.path}.copy_(...)"
        return f"self.{last} is updated in forward", f"{outside}   # outside, from the gathered result"
    return change.written, f"{_outside(change)}   # outside, after the call, from the gathered result"


@rule("DP306", "batchnorm-statistics", "warning")
def batchnorm_statistics(evidence: Evidence) -> Iterator[Found]:
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
    kinds = dict(evidence.scan.module_types)
    for probe, change in _changes(evidence, "buffer"):
        path, _, name = change.path.rpartition(".")
        if name in _STATISTICS and not change.same and kinds.get(path) != "SyncBatchNorm":
            first = (
                f"`{path}` and others"
                if _count(evidence, "BatchNorm") > 1
                else f"`{path or change.module_type}`"
            )
            yield Found(
                "BatchNorm",
                f"{first}: statistics are taken over chunks of {_largest(probe)} instead of "
                f"{probe.batch_size} samples, "
                "and the running ones are those of chunk 0",
                None,
                probe,
                before=(norm := _norm_of(evidence, path))[0],
                after=norm[1],
            )


def _norm_of(evidence: Evidence, path: str) -> tuple[str, str]:
    """Write a normalising layer as it stands in the model, and one of its size that knows no batch."""
    for found, name, channels in evidence.scan.norms:
        if found == path:
            groups = next(
                number for number in (32, 16, 8, 4, 2, 1) if channels % number == 0 and channels > number
            )
            return f"nn.{name}({channels})", f"nn.GroupNorm({groups}, {channels})"
    return "", ""


def _count(evidence: Evidence, kind: str) -> int:
    return sum(name == kind for _, name in evidence.scan.module_types)


def _largest(probe: Probe) -> int:
    return probe.split.largest if probe.split else probe.batch_size


@rule("DP307", "sync-batchnorm", "warning")
def sync_batchnorm(evidence: Evidence) -> Iterator[Found]:
    """SyncBatchNorm synchronises nothing under DataParallel.

    What happens: it works as plain BatchNorm, without a word: each replica normalises with its own chunk.
    Why: it synchronises only between processes of torch.distributed, and DataParallel is one process.
    Before: nn.DataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model))
    After: DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model))
    Seen by: a SyncBatchNorm in the model.
    References: PatrickHua/SimSiam#24
    """
    for path, kind in evidence.scan.module_types:
        if kind == "SyncBatchNorm":
            before, after = _norm_of(evidence, path)
            what = f"`{path}` is a SyncBatchNorm: here it works as plain BatchNorm"
            yield Found("SyncBatchNorm", what, before=before, after=after)


@rule("DP309", "shared-container", "error", unless=("DP311",))
def shared_container(evidence: Evidence) -> Iterator[Found]:
    """A list or dict on `self` is shared by all replicas.

    What happens: each replica appends to the same list, in the order of threads; in a dict each overwrites
        what the others stored, and reads tensors that lie on another's GPU.
    Why: replicas are shallow copies: their attributes are the same objects, used by n threads at once.
    Before: self.features.append(h)   # in forward
    After: return y, h                # return it: gather joins the replicas'
    Seen by: a container that a forward under DataParallel changes.
    References: pytorch/pytorch#15993, pytorch/pytorch#128272
    """
    harmless: dict[str, tuple[Probe, StateChange]] = {}
    for probe, change in _changes(evidence, "container"):
        if not change.parallel_changed:
            continue
        if change.harmless:
            harmless.setdefault(change.path, (probe, change))
            continue
        last = change.path.rpartition(".")[2]
        yield Found(
            change.path,
            f"`{change.path}` is written by all replicas at once: {change.single} after a call on one GPU, "
            f"{change.parallel} under DataParallel",
            change.place,
            probe,
            before=change.written or f"self.{last}...   # written in forward",
            after="return ..., value   # and outside, with what was gathered: "
            + (_outside(change) if change.written else f"model.module.{change.path}..."),
        )
    if harmless:
        yield _told_once(
            harmless, "shared by all replicas, each of which writes an entry of its own, or the same"
        )


@rule("DP311", "gradients-in-forward", "error")
def gradients_in_forward(evidence: Evidence) -> Iterator[Found]:
    """Gradients are touched inside forward.

    What happens: `zero_grad()` has no effect there, `.grad` is None, and a `backward()` adds to the model's
        gradients once for each replica.
    Why: a replica's parameters are copies that gradients pass through on their way to the model.
    Before: self.zero_grad(); loss.backward()                      # in forward
    After: torch.autograd.grad(loss, [self.fc.weight])             # in forward, or all of it outside
    Seen by: PyTorch's warning, a backward in a replica, or gradients right after forward.
    References: pytorch/pytorch#31768
    """
    for probe, call in evidence.calls:
        for event in call.events:
            if event.kind == "backward":
                yield Found(
                    "gradients",
                    f"forward goes backward in each of the {len(call.replicas)} replicas: the model's "
                    "gradients "
                    "receive each one's",
                    event.place,
                    probe,
                    None,
                    *_backward_repair(event),
                )
        if any(event.kind == "backward" for event in call.events):
            continue  # what else touches gradients goes with it
        for text in call.warnings:
            if "zero_grad() from a module created with nn.DataParallel" in text:
                yield Found("zero_grad", "`zero_grad()` in forward has no effect in replicas", None, probe)
            elif ".grad attribute of a Tensor that is not a leaf" in text:
                yield Found(
                    ".grad", "`.grad` of a parameter is None in replicas: there it is a copy", None, probe
                )


def _backward_repair(event: Event) -> tuple[str, str]:
    """Write a line that goes backward, and one that asks for the gradients and keeps them apart."""
    code = event.place.code if event.place else ""
    found = re.fullmatch(r"(.+)\.backward\(\)", code)
    if found is None:
        return "", ""
    return (
        code,
        f"gradients = torch.autograd.grad({found[1]}, [...])   # of what forward needs: an input, self.w",
    )


@rule("DP313", "parameter-changed", "error", unless=("DP311",))
def parameter_changed(evidence: Evidence) -> Iterator[Found]:
    """Forward changes a parameter in place.

    What happens: with gradients on, `Output 0 of BroadcastBackward is a view and ... modified inplace`. Where
        none are tracked (no_grad around the call, `.data`, a frozen parameter) the change is made once, by
        replica 0 with chunk 0, in silence.
    Why: replica 0's parameters are the model's own, as views; the others' are copies that are thrown away.
    Before: with torch.no_grad(): self.codebook.mul_(0.99)   # in forward
    After: model.module.update_codebook()                    # after the call
    Seen by: a parameter that forward changes, or this exception.
    References: EPFL-LCN/pub-illing2021-neurips#3
    """
    changed = [pair for pair in _changes(evidence, "parameter") if pair[1].parallel_changed]
    for probe, change in changed:
        yield Found(
            change.path,
            f"forward changes the parameter `{change.path}` in place: only replica 0's change, made "
            "with chunk 0, reaches the model",
            change.place,
            probe,
            before=change.written or f"{attribute_of(change.path)} is changed in forward",
            after=(_outside(change) if change.written else f"{attribute_of(change.path, 'model.module')}...")
            + "   # outside, after the call, under torch.no_grad()",
        )
    for probe, call in evidence.calls:
        for replica in call.replicas:
            error = replica.raised
            if error is not None and re.search(_BROADCAST_VIEW, error.message) and not changed:
                yield Found(
                    str(error.place),
                    "forward changes a parameter in place, which replica 0 holds as a view",
                    error.place,
                    probe,
                )
