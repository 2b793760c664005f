"""Ties of a replica to the original model or to one GPU: DP302 to DP304, DP310, DP317."""

from collections.abc import Iterator, Sequence

from dpdemo.checking.evidence import Evidence, Holding, Probe
from dpdemo.checking.fills import as_buffer, as_modules, on_inputs_device
from dpdemo.checking.questions.failures import (
    crossed_devices,
    failures,
    looks_up_in_vain,
    names,
    reads_in_vain,
)
from dpdemo.checking.questions.results import is_off
from dpdemo.checking.questions.words import article, attribute_at, listed
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import TO_ITS_DEVICE, Advice, Hit, advise, first_call
from dpdemo.results.findings import Place, Severity

_Suspect = tuple[Holding, Place | None, Probe, bool]
"""A held object, a place, a probe that failed, and whether the functions that failed name the object."""


def _suspects(evidence: Evidence, held: Sequence[Holding]) -> Iterator[_Suspect]:
    """List what is held and could have crossed devices, and whether the functions that failed name it."""
    crossings = list(crossed_devices(evidence))
    for item in held:
        if item.kind == "named" and not any(names(error, item.name, is_bare=True) for _, error in crossings):
            continue  # functions may name many that forward does not use
        for probe, error in crossings:
            if names(error, item.name, is_bare=item.kind == "named"):
                yield item, error.place, probe, True
                break
        else:
            if crossings:
                yield item, item.place, crossings[0][0], False


@rule("DP302", "plain-tensor", "error", explains=("devices", "difference"))
def plain_tensor(evidence: Evidence) -> Iterator[Hit]:
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
    held = [item for item in evidence.scan.of_kind("tensor") if item.device.startswith("cuda")]
    by_line: dict[object, list[_Suspect]] = {}
    for suspect in _suspects(evidence, held):
        tensor = suspect[0]
        line = (tensor.place, tensor.path.rpartition(".")[0]) if tensor.place else tensor.path
        by_line.setdefault(line, []).append(suspect)
    for suspects in by_line.values():
        tensor, place, probe, is_named = next((each for each in suspects if each[-1]), suspects[0])
        tensors = [each for each, *_ in suspects]
        subject, what = ",".join(each.path for each in tensors), _told(tensors) + " too" * (not is_named)
        advice = TO_ITS_DEVICE if tensor.holder else advise(_BUFFER, fill=as_buffer, name=tensor.name)
        yield Hit(subject, what, tensor.place or place, probe, None if is_named else "warning", advice)
    for tensor, place, probe, is_named in _suspects(evidence, evidence.scan.of_kind("shared")):
        what = (
            f"`{tensor.path}` holds a parameter or buffer of the model, of shape {tensor.shape}: "
            "in every replica it is the original's, on GPU 0"
        )
        advice = advise('getattr(self.part, "weight")   # in forward, where it is used')
        yield Hit(tensor.path, what, tensor.place or place, probe, None if is_named else "warning", advice)


_BUFFER = "self.{name}.to({x}.device)   # where it is used; or register it as a buffer"


def _told(tensors: Sequence[Holding]) -> str:
    """Describe the tensors that one statement sets."""
    held = tensors[0]
    if len(tensors) > 1:
        return (
            f"{listed([other.path for other in tensors])} are tensors, and neither parameters nor buffers: "
            "replicas on other GPUs use those very tensors"
        )
    within = f", as `{held.within}` of {article(held.holder)}" if held.within else ""
    by = f"{held.holder} that holds " if held.holder and not held.within else ""
    return (
        f"`{held.path}` is {by}a tensor of shape {held.shape} on {held.device}{within}, and neither "
        "parameter nor buffer: replicas on other GPUs use that very tensor"
    )


@rule("DP303", "fixed-device", "error", symptoms=("moved",), explains=("devices", "difference"))
def fixed_device(evidence: Evidence) -> Iterator[Hit]:
    """Forward names a GPU.

    What happens: tensors are made on or moved to one GPU in all replicas: a two-device error in replica 1,
        or a detour that nobody notices.
    Why: `"cuda:0"`, `.cuda(0)` and `self.device` are the same in every replica.
    Before: mask = torch.zeros(n, device="cuda:0")   # or device=self.device
    After: mask = torch.zeros(n, device=x.device)
    Seen by: what factories, `.to` and `.cuda` return inside replicas.
    References: Lightning-AI/pytorch-lightning#6414, kornia/kornia#130
    """
    severity: Severity | None = None if any(crossed_devices(evidence)) else "warning"
    for probe, event in evidence.events("moved"):
        what = (
            f"in replica {event.replica}, on cuda:{event.replica}, a tensor comes to be on another GPU: "
            f"{event.detail}"
        )
        advice = advise("device={x}.device   # of a tensor that came with the chunk", fill=on_inputs_device)
        yield Hit(str(event.place or event.detail), what, event.place, probe, severity, advice)


_TIES = ("callable", "module", "holder", "outer", "named")
"""Kinds of what is held that lead back to the original."""


@rule("DP304", "original-module", "error", explains=("devices", "difference"))
def original_module(evidence: Evidence) -> Iterator[Hit]:
    """A list of modules, a bound method or a closure on `self` leads back to the original model.

    What happens: all replicas compute with the original's weights, on GPU 0: a two-device error in replica 1.
        A module outside of the model that a function on `self` swaps weights of is one for all threads. A
        dict or set that is keyed by modules does not have a replica's: a `KeyError`, or another result.
    Why: only registered submodules are replaced in a replica; other attributes still hold the original.
    Before: self.layers = [nn.Linear(4, 4)]; self.act = self._impl
    After: self.layers = nn.ModuleList([nn.Linear(4, 4)]); self.act_name = "_impl"   # and getattr in forward
    Seen by: modules and functions on `self` that hold modules, and an error in a replica.
    References: pytorch/pytorch#8637, pytorch/pytorch#3174, huggingface/transformers#22326
    """
    yield from _compiled(evidence)
    for held, place, probe, is_named in _suspects(evidence, evidence.scan.of_kind(*_TIES)):
        is_forward = held.name in {"forward", "__call__"}
        severity: Severity | None = None if is_named or is_forward else "warning"
        what = (
            f"`{held.path}` is {_tie(held, is_forward=is_forward)}: "
            "in every replica it is the original's, on GPU 0"
        )
        yield Hit(held.path, what, held.place or place, probe, severity, _looked_up(held))
    yield from _swapped(evidence)
    yield from _keyed(evidence)
    yield from _moved(evidence)


def _moved(evidence: Evidence) -> Iterator[Hit]:
    """Report modules outside of the model that each replica moves to its own GPU."""
    for probe, event in evidence.events("module"):
        what = (
            f"forward moves {article(event.detail)} outside of the model to the GPU of its replica: "
            "all replicas share it, and one takes it away while another computes with it"
        )
        yield Hit(str(event.place), what, event.place, probe, advice=_REGISTERED)


def _looked_up(held: Holding) -> Advice:
    """Advise a container that registers modules; a name to look up; or a part that is registered."""
    if held.kind in {"callable", "outer"}:
        return _FUNCTION
    if held.kind == "named":
        return _REGISTERED
    kept = 'getattr(self, "name")   # on self, keep the name of what is used'
    return advise(kept, fill=as_modules if held.is_pure else None)


_REGISTERED = advise(
    "self.part = part   # in __init__: a registered module, of which each replica has a copy"
)
_FUNCTION = advise(
    "functional_call(self.part, weights, ({x},))   # a module that is registered: self.part = ..."
)


def _tie(held: Holding, *, is_forward: bool) -> str:
    """Write what leads back to the original."""
    if held.kind in {"callable", "outer"}:
        return f"{'a forward' if is_forward else held.holder} that holds {held.leads_to}"
    if held.kind == "named":
        return f"{article(held.type)} outside of the model"
    within = f", as `{held.within}` of {article(held.holder)}" if held.within else ""
    return f"a list or attribute with {article(held.type)}{within}"


def _compiled(evidence: Evidence) -> Iterator[Hit]:
    for path, kind in evidence.scan.module_types:
        if kind == "OptimizedModule":
            part = attribute_at(path, "model") if path else "model"
            what = f"`{path or evidence.scan.model}` is compiled: every replica calls the original's code"
            yield Hit(path, what, advice=_uncompiled(part, f"{part} = {part}._orig_mod"))
    for item in evidence.scan.of_kind("compiled"):
        part = attribute_at(item.path, "model").rpartition(".")[0]
        what = f"`{item.path}`: a compiled forward is the original's in every replica"
        yield Hit(item.path, what, advice=_uncompiled(part, f"{part}._compiled_call_impl = None"))


def _uncompiled(part: str, code: str) -> Advice:
    """Advise to undo a compilation."""
    after, before = "{code}   # before nn.DataParallel(model)", "{part}   # compiled"
    return advise(after, before=before, part=part, code=code)


def _swapped(evidence: Evidence) -> Iterator[Hit]:
    """Report modules outside of the model whose weights forward swaps, though no device was crossed."""
    if any(crossed_devices(evidence)):
        return
    ran = [probe for probe, call in evidence.calls if len(call.replicas) > 1]
    is_wrong = any(map(is_off, ran)) or any(failures(evidence))
    for item in evidence.scan.of_kind("outer") if ran else ():
        what = f"`{item.path}` is {_tie(item, is_forward=False)}: all replicas share that module at once"
        yield Hit(item.path, what, item.place, ran[0], None if is_wrong else "warning", _FUNCTION)


def _keyed(evidence: Evidence) -> Iterator[Hit]:
    """Report dicts and sets keyed by parts of the model, where a replica looks up its own in vain."""
    for item in evidence.scan.of_kind("keyed"):
        keys = f"{item.leads_to} of the model"
        what = f"`{item.path}` is keyed by {keys}: a replica looks up its own copies in vain"
        code = 'self.{name} = {{"fc": value}}   # by name: it is the same in every replica'
        advice = advise(code, name=item.name)
        for probe, error in failures(evidence):
            if looks_up_in_vain(error, item):
                place, explains = item.place or error.place, (error.symptom,)
                yield Hit(item.path, what, place, probe, advice=advice, explains=explains)
        for probe in filter(is_off, evidence.probes):
            yield Hit(item.path, what, item.place, probe, advice=advice)


@rule("DP310", "hooks", "warning")
def hooks(evidence: Evidence) -> Iterator[Hit]:
    """A hook is called once for each replica.

    What happens: it sees chunks, on different GPUs, in the order of threads; what it stores by name is that
        of the last replica, and `module` is not the module that it was registered on.
    Why: replicas share the dict of hooks of their original.
    Before: features["fc"] = output
    After: features[output.device.index] = output   # join in this order; or return them from forward
    Seen by: hooks on modules of the model, other than PyTorch's own. A note where what a hook reaches is as
        before after a call, or has an entry of each GPU's own.
    References: pytorch/pytorch#42478, antoinebrl/torchextractor#1
    """
    is_wrong = any(is_off(probe) for probe in evidence.probes)  # what the hook keeps is part of the result
    kept = {(write.path, write.function): write for write in evidence.kept}
    for held in evidence.scan.of_kind("hook"):
        function = held.type.rpartition(".")[2]
        what = (
            f"the hook `{function}` on `{held.path}` runs {evidence.num_gpus} times a call, with a chunk "
            "each time"
        )
        found = kept.get((held.path, held.type))
        errors = [error for _, error in failures(evidence) if found and reads_in_vain(error, found)]
        severity: Severity | None = "error" if errors or is_wrong else "info" if found is None else None
        explains = tuple(error.symptom for error in errors)
        yield Hit(held.path + held.type, what, held.place, None, severity, explains=explains)


@rule("DP317", "hooks-in-forward", "error", explains=("rows", "raises", "difference"))
def hooks_in_forward(evidence: Evidence) -> Iterator[Hit]:
    """Forward puts hooks into its modules at the first call, and each replica puts its own.

    What happens: a hook that a plain call registers once is there once for each GPU, so that outputs are
        kept several times: `zip() argument 2 is longer than argument 1` when hidden states are gathered, or
        a replica raises. Models of transformers 5 do so at their first call. A note where results are right.
        A hook that is taken out again before forward returns runs in whatever replicas are there meanwhile,
        and keeps chunks of theirs: how many depends on their timing. A note where it keeps nothing.
    Why: replicas are shallow copies that share the original's dicts of hooks, and none sees that another one
        has been there.
    Before: dp = nn.DataParallel(model); dp(x)
    After: model(x); dp = nn.DataParallel(model); dp(x)   # one plain call first, which puts the hooks there
    Seen by: hooks that modules of the model have after a forward and had not before it; or that two replicas
        put into one dict.
    References: pytorch/pytorch#128272
    """
    stays = False
    for probe in evidence.probes:
        changed = [change for change in probe.changes if change.kind == "hooks" and change.parallel_changed]
        if not changed:
            continue
        stays, first, comparison = True, changed[0], probe.comparison
        is_wrong = probe.raised is not None or comparison.values_equal is False or bool(comparison.differing)
        path = first.path.rpartition(".")[0] or evidence.scan.model
        more = f", and those of {len(changed) - 1} other modules" if len(changed) > 1 else ""
        what = (
            f"forward puts hooks into `{path}`{more}: it has {first.single.text} after a call on one GPU, "
            f"{first.parallel.text} under DataParallel"
        )
        severity: Severity | None = None if is_wrong else "info"
        yield Hit("hooks", what, evidence.scan.forward, probe, severity, first_call())
    for probe, event in () if stays else evidence.events("hook"):
        what = (
            f"forward puts a hook into {article(event.detail)}, and replicas share that module's dict of "
            "hooks: it runs in the others too while it is there"
        )
        is_note = event.is_quiet and not is_off(probe)
        yield Hit(str(event.place), what, event.place, probe, "info" if is_note else None)
