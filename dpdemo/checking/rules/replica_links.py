"""What ties a replica to the original model or to one GPU: DP302 to DP304, DP310, DP317."""

import re
from collections.abc import Iterator, Sequence

from dpdemo.checking.evidence import MOVED_ALONG, Evidence, Held, Probe, Raised
from dpdemo.checking.failing import failed_through, is_named_in, placed_in_forward
from dpdemo.checking.looking import call_of, crossed_devices, forward_place, is_off, listed
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import repair_of
from dpdemo.checking.rewriting.devices import device_repair
from dpdemo.checking.rewriting.harmless import is_harmless, only_looks
from dpdemo.checking.rewriting.hooking import kept_by_gpu, keys_read_in_vain
from dpdemo.checking.rewriting.own_hooks import hooks_of_its_own
from dpdemo.checking.rewriting.patched import forward_repair
from dpdemo.checking.rewriting.ties import (
    buffer_repair,
    module_repair,
    moved_where_used,
)
from dpdemo.checking.source import attribute_of, class_at
from dpdemo.reports.check import Change, Place

_Suspect = tuple[Held, Place | None, Probe, bool]
"""What is held, a place, a probe that failed, and whether the functions that failed name it."""


def _suspects(evidence: Evidence, held: tuple[Held, ...]) -> Iterator[_Suspect]:
    """List what is held and could have crossed devices, and whether the functions that failed name it."""
    crossings = list(crossed_devices(evidence))
    for one in held:
        name = one.path.rpartition(".")[2]
        for probe, error in crossings:
            if is_named_in(name, error) or _is_in_its_object(one, error):
                yield one, error.place, probe, True
                break
        else:
            if crossings:
                yield one, one.place, crossings[0][0], False


def _is_in_its_object(held: Held, error: Raised) -> bool:
    """Whether a method of the object that holds a tensor failed."""
    inner = re.search(r", as `\w+` of a (\w+)", held.detail)
    return inner is not None and class_at(error.place) == inner[1]


_PLACED = ", moved by the first replica"


@rule("DP302", "plain-tensor", "error")
def plain_tensor(evidence: Evidence) -> Iterator[Found]:
    """A tensor on `self` that is no parameter and no buffer stays on GPU 0.

    What happens: `Expected all tensors to be on the same device, but found at least two devices, cuda:1 and
        cuda:0`, in replica 1. Tensors in lists and dicts on `self` are as bad.
    Why: replicas get copies of registered parameters and buffers; all other attributes are shared as they
        are.
    Before: self.scale = torch.ones(3, device="cuda:0")
    After: self.register_buffer("scale", torch.ones(3), persistent=False)
    Seen by: a two-device error in a replica, and the unregistered tensors of the model.
    References: pytorch/pytorch#2864, htqin/IR-Net#19
    """
    placed = placed_in_forward(evidence)
    held = tuple(
        one
        for one in evidence.scan.of_kind("tensor")
        if "on cuda" in one.detail or MOVED_ALONG in one.detail or one.path in placed
    )
    repaired: dict[str | tuple[Change, ...], list[_Suspect]] = {}
    for suspect in _suspects(evidence, held):
        one, place, _, _ = suspect
        beside = [other.path.rpartition(".")[2] for other in held if _is_beside(other, one)]
        changes = moved_where_used(one, place, evidence) or buffer_repair(one, evidence, beside)
        repaired.setdefault(changes or one.path, []).append(suspect)
    for key, suspects in repaired.items():
        one, place, probe, is_named = next((each for each in suspects if each[-1]), suspects[0])
        is_used = moved_where_used(one, place, evidence) is not None
        tensors = [each for each, *_ in suspects]
        yield Found(
            ",".join(each.path for each in tensors),
            _told(tensors, placed) + ("" if is_named else " too"),
            probe=probe,
            severity=None if is_named else "warning",
            place=place if is_used else one.place or place,
            repair=repair_of(key) if isinstance(key, tuple) else None,
        )
    for one, place, probe, is_named in _suspects(evidence, evidence.scan.of_kind("shared")):
        yield Found(
            one.path,
            f"`{one.path}` holds a parameter or buffer of the model, {one.detail}: in every replica it is "
            "the original's, on GPU 0",
            probe=probe,
            severity=None if is_named else "warning",
            place=one.place or place,
            repair=repair_of(buffer_repair(one, evidence)),
        )


def _is_beside(other: Held, one: Held) -> bool:
    """Whether one statement gives two attributes of a module their values."""
    is_same = other is not one and other.place is not None and other.place == one.place
    return is_same and other.path.rpartition(".")[0] == one.path.rpartition(".")[0]


def _told(tensors: Sequence[Held], placed: set[str]) -> str:
    """Say what tensors are, that one statement sets."""
    one = tensors[0]
    if len(tensors) > 1:
        return (
            f"{listed([other.path for other in tensors])} are tensors, and neither parameters nor buffers: "
            "replicas on other GPUs use those very tensors"
        )
    return (
        f"`{one.path}` is {one.detail}{_PLACED if one.path in placed else ''}, and neither parameter nor "
        "buffer: replicas on other GPUs use that very tensor"
    )


@rule("DP303", "fixed-device", "error")
def fixed_device(evidence: Evidence) -> Iterator[Found]:
    """Forward names a GPU.

    What happens: tensors are made on or moved to one GPU in all replicas: a two-device error in replica 1,
        or a detour that nobody notices.
    Why: `"cuda:0"`, `.cuda(0)` and `self.device` are the same in every replica.
    Before: mask = torch.zeros(n, device="cuda:0")   # or device=self.device
    After: mask = torch.zeros(n, device=x.device)
    Seen by: what factories, `.to` and `.cuda` return inside replicas.
    References: Lightning-AI/pytorch-lightning#6414, kornia/kornia#130
    """
    crossed = any(crossed_devices(evidence))
    for probe, call in evidence.calls:
        if len(evidence.scan.wrappers) > 1:
            return  # DP106: the inner one scatters from replicas
        for event in call.events:
            if event.kind == "moved":
                yield Found(
                    str(event.place or event.detail),
                    f"in replica {event.replica}, on cuda:{event.replica}, a tensor comes to be on "
                    "another GPU: "
                    f"{event.detail}",
                    event.place,
                    probe,
                    None if crossed else "warning",
                    repair=device_repair(event, evidence),
                )


_TIES = ("callable", "module", "ancestor", "holder")
"""Kinds of what is held that lead back to the original."""


@rule("DP304", "original-module", "error")
def original_module(evidence: Evidence) -> Iterator[Found]:
    """A list of modules, a bound method or a closure on `self` leads back to the original model.

    What happens: all replicas compute with the original's weights, on GPU 0: a two-device error in replica 1.
    Why: only registered submodules are replaced in a replica; other attributes still hold the original.
    Before: self.layers = [nn.Linear(4, 4)]; self.act = self._impl
    After: self.layers = nn.ModuleList([nn.Linear(4, 4)]); self.act_name = "_impl"   # and getattr in forward
    Seen by: modules and functions on `self` that hold modules of the model, and a two-device error in a
        replica.
    References: pytorch/pytorch#8637, pytorch/pytorch#3174, huggingface/transformers#22326
    """
    for path, kind in evidence.scan.module_types:
        if kind == "OptimizedModule":
            what = f"`{path or evidence.scan.model}` is compiled: every replica calls the original's code"
            part = attribute_of(path, "model") if path else "model"
            plain = f"{part} = {part}._orig_mod   # before nn.DataParallel(model)"
            yield Found(path, what, before=f"{part}   # as torch.compile made it", after=plain)
    for one in evidence.scan.of_kind("compiled"):
        part = attribute_of(one.path, "model").rpartition(".")[0]
        what = f"`{one.path}`: a compiled forward is the original's in every replica"
        plain = f"{part}._compiled_call_impl = None   # before nn.DataParallel(model)"
        yield Found(one.path, what, before=f"{part}.compile()", after=plain)
    held = tuple(one for kind in _TIES for one in evidence.scan.of_kind(kind))
    through = [(one, error.place, probe, True) for one, probe, error in failed_through(evidence)]
    for one, place, probe, is_named in through or _suspects(evidence, held):
        what = one.detail if one.kind == "callable" else f"a list or attribute with a {one.detail}"
        shadows = one.path.rpartition(".")[2] == "forward"
        use = next((error.place for _, error in crossed_devices(evidence) if error.place), None)
        own = forward_repair(use) if shadows else None
        yield Found(
            one.path,
            f"`{one.path}` is {what}: in every replica it is the original's, on GPU 0",
            probe=probe,
            severity=None if is_named or shadows else "warning",
            place=one.place or place,
            repair=own or repair_of(module_repair(one, evidence)),
        )


@rule("DP310", "hooks", "warning")
def hooks(evidence: Evidence) -> Iterator[Found]:
    """A hook is called once for each replica.

    What happens: it sees chunks, on different GPUs, in the order of threads; what it stores by name is that
        of the last replica, and `module` is not the module that it was registered on.
    Why: replicas share the dict of hooks of their original.
    Before: features["fc"] = output
    After: features[output.device.index] = output   # join in this order; or return them from forward
    Seen by: hooks on modules of the model, other than PyTorch's own. A note where a hook keeps nothing, or
        each GPU's in an entry of its own.
    References: pytorch/pytorch#42478, antoinebrl/torchextractor#1
    """
    is_wrong = any(is_off(probe) for probe in evidence.probes)  # what the hook keeps is part of the result
    in_vain = {(place.file, place.line) for place in keys_read_in_vain(evidence)}
    for held in evidence.scan.of_kind("hook"):
        changes = kept_by_gpu(held.place, evidence)
        places = [one.place for one in changes if one.place is not None]
        is_read = any((place.file, place.line) in in_vain for place in places)
        yield Found(
            held.path + held.detail,
            f"the hook `{held.detail.rpartition('.')[2]}` on `{held.path}` runs {evidence.num_gpus} times "
            "a call, with a chunk each time",
            severity="error" if is_wrong or is_read else "info" if is_harmless(held.place) else None,
            place=held.place,
            repair=repair_of(changes),
        )


@rule("DP317", "hooks-in-forward", "error")
def hooks_in_forward(evidence: Evidence) -> Iterator[Found]:
    """Forward puts hooks into its modules at the first call, and each replica puts its own.

    What happens: a hook that a plain call registers once is there once for each GPU, so that outputs are
        kept several times: `zip() argument 2 is longer than argument 1` when hidden states are gathered, or
        a replica raises. Models of transformers 5 do so at their first call. A note where results are right
        all the same. A hook that is taken out again before forward returns runs in whatever replicas are
        there meanwhile, and keeps chunks of theirs: how many depends on their timing. A note where it neither
        keeps nor returns anything.
    Why: replicas are shallow copies that share the original's dicts of hooks, and none sees that another one
        has been there.
    Before: dp = nn.DataParallel(model); dp(x)
    After: model(x); dp = nn.DataParallel(model); dp(x)   # one plain call first, which puts the hooks there
    Seen by: hooks that modules of the model have after a forward and had not before it; or that two replicas
        put into one dict.
    References: pytorch/pytorch#128272
    """
    yield from _taken_out_again(evidence)
    for probe in evidence.probes:
        changed = [one for one in probe.changes if one.kind == "hooks" and one.parallel_changed]
        if not changed:
            continue
        first, comparison = changed[0], probe.comparison
        is_wrong = probe.raised is not None or comparison.values_equal is False or bool(comparison.differing)
        given = call_of(probe.call) if probe.call else "model(...)"
        path = first.path.rpartition(".")[0]
        more = f", and those of {len(changed) - 1} other modules" if len(changed) > 1 else ""
        yield Found(
            "hooks",
            f"forward puts hooks into `{path or evidence.scan.model}`{more}: it has {first.single} after a "
            f"call on one GPU, {first.parallel} under DataParallel",
            forward_place(evidence),
            probe,
            None if is_wrong else "info",
            "model = nn.DataParallel(model)",
            f"{given}   # one plain call first\nmodel = nn.DataParallel(model)",
        )


def _taken_out_again(evidence: Evidence) -> Iterator[Found]:
    """Tell of hooks that replicas put into the dict that they share, and that are gone after forward."""
    stays = any(
        one.kind == "hooks" and one.parallel_changed for probe in evidence.probes for one in probe.changes
    )
    for probe, call in evidence.calls if not stays else ():
        for event in call.events:
            if event.kind == "hook":
                yield Found(
                    str(event.place),
                    f"forward puts a hook into a {event.detail}, and replicas share that module's dict of "
                    "hooks: it runs in the others too while it is there",
                    event.place,
                    probe,
                    "info" if only_looks(event.hook) else None,
                    repair=repair_of(hooks_of_its_own(event)),
                )
