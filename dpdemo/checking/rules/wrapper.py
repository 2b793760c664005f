"""What goes wrong around the wrapper itself: DP101 to DP109."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Event, Evidence, Raised
from dpdemo.checking.looking import failures, forward_place, listed
from dpdemo.checking.methods import method_at
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.wrapped import by_module, called_through
from dpdemo.checking.source import attribute_of, function_at, tree_of
from dpdemo.reports.check import Change, Place


def _everything_raised(evidence: Evidence) -> Iterator[Raised]:
    if evidence.factory_raised is not None:
        yield evidence.factory_raised
    for probe in evidence.probes:
        if probe.single.raised is not None:
            yield probe.single.raised
    for _, error in failures(evidence):
        yield error


@rule("DP101", "wrapper-attribute", "error")
def wrapper_attribute(evidence: Evidence) -> Iterator[Found]:
    """An attribute of the model is looked up on the wrapper.

    What happens: `AttributeError: 'DataParallel' object has no attribute 'fc'`.
    Why: DataParallel is a module with one child, `module`; it forwards calls and nothing else.
    Before: dp.fc.weight
    After: dp.module.fc.weight
    Seen by: this exception, while the model is built or called.
    References: pytorch/pytorch#16885, pytorch/pytorch#43329, huggingface/transformers#20583
    """
    for error in _everything_raised(evidence):
        missing = re.search(r"'DataParallel' object has no attribute '(\w+)'", error.message)
        if missing:
            name = missing[1]
            what = f"`{name}` is looked up on DataParallel, and is `.module.{name}`"
            wrappers = (called_through(path, evidence) for path in evidence.scan.wrappers)
            own = next((one for one in wrappers if one is not None), None)
            yield Found(name, what, error.place, repair=own or by_module(error.place, name))


@rule("DP102", "state-dict-prefix", "error")
def state_dict_prefix(evidence: Evidence) -> Iterator[Found]:
    """A state_dict is loaded across the wrapper, and no key matches.

    What happens: `Missing key(s) in state_dict: "fc.weight"`, `Unexpected key(s): "module.fc.weight"`; with
        `strict=False` nothing is loaded and nothing is said.
    Why: the wrapper's keys carry the name of its child: `module.`.
    Before: torch.save(dp.state_dict(), "model.pt")
    After: torch.save(dp.module.state_dict(), "model.pt")
    Seen by: a load of which no key matches until `module.` is put before them or taken away.
    References: pytorch/pytorch#3805, JaidedAI/EasyOCR#1009
    """
    for event in evidence.building:
        if event.kind == "load_state_dict":
            yield Found(
                event.detail,
                f"none of the loaded keys, such as `{event.detail}`, matches: they differ by the prefix "
                "`module.`",
                event.place,
                None,
                None,
                *_load_repair(event),
            )


def _load_repair(event: Event) -> tuple[str, str]:
    """Write a load, and the same with keys that match."""
    code = event.place.code if event.place else ""
    found = re.search(r"([\w.]+)\.load_state_dict\((.+?)(, strict=\w+)?\)$", code)
    if found is None:
        return "", ""
    owner, state = found[1], found[2]
    if event.detail.startswith("module."):
        state = f'{{key.removeprefix("module."): value for key, value in {state}.items()}}'
    else:
        owner = f"{owner}.module"
    return code, f"{code[: found.start()]}{owner}.load_state_dict({state})"


@rule("DP103", "wrong-device", "error")
def wrong_device(evidence: Evidence) -> Iterator[Found]:
    """Parameters or buffers are not on the first GPU of the wrapper.

    What happens: `module must have its parameters and buffers on device cuda:0 (device_ids[0])`.
    Why: replicas are copied from device_ids[0]; DataParallel checks this at each call and moves nothing
        itself.
    Before: nn.DataParallel(model.to("cuda:1"), device_ids=[0, 1])
    After: nn.DataParallel(model.to("cuda:0"), device_ids=[0, 1])
    Seen by: the device of each parameter and buffer.
    References: pytorch/pytorch#17065, ethnhe/FFB6D#4
    """
    strays = evidence.scan.strays
    if strays:
        devices = sorted({device for _, device in strays})
        wanted = f"cuda:{(*evidence.scan.device_ids, 0)[0]}"
        is_spread = not evidence.probes and not evidence.scan.device_ids
        yield Found(
            "strays",
            f"{listed([name for name, _ in strays])} on {' and '.join(devices)}, and device_ids[0] is "
            f"{wanted}",
            forward_place(evidence),
            before=f"nn.DataParallel(model)   # {strays[0][0]} on {strays[0][1]}",
            after=_SPREAD
            if is_spread
            else f'nn.DataParallel(model.to("{wanted}"))   # moved after the last parameter is made',
        )


_SPREAD = "nn.parallel.DistributedDataParallel(model)   # a process for each set of GPUs: a replica is on one"


@rule("DP104", "device-ids", "error")
def device_ids(evidence: Evidence) -> Iterator[Found]:
    """The list of device_ids cannot be, or does not split anything.

    What happens: `AssertionError: Invalid device id` for a GPU that is not visible, `IndexError` for an
        empty list; with one GPU named twice both replicas run there, in silence.
    Why: ids count the visible GPUs from 0, and CUDA_VISIBLE_DEVICES renumbers them.
    Before: nn.DataParallel(model, device_ids=[2, 3])   # CUDA_VISIBLE_DEVICES=2,3
    After: nn.DataParallel(model, device_ids=[0, 1])
    Seen by: the exception of DataParallel's constructor; or an id that comes twice.
    References: pytorch/pytorch#9814, HRNet/HRNet-Semantic-Segmentation#30
    """
    visible = list(range(evidence.num_gpus))
    error = evidence.factory_raised
    if error is not None and error.type in ("AssertionError", "IndexError"):
        yield Found(
            "device_ids",
            f"DataParallel cannot be made over these device_ids, with {evidence.num_gpus} GPUs: {error}",
            place=error.place,
            repair=repair_of(_ids_named(error, visible)),
        )
    ids = evidence.scan.device_ids
    twice = sorted({number for number in ids if ids.count(number) > 1})
    if twice:
        what = f"cuda:{twice[0]} is named {ids.count(twice[0])} times in device_ids"
        once = list(dict.fromkeys(ids))
        before, after = f"nn.DataParallel(model, device_ids={list(ids)})", f"device_ids={once}"
        yield Found("device_ids", what, before=before, after=f"nn.DataParallel(model, {after})")


def _ids_named(error: Raised, visible: list[int]) -> tuple[Change, ...]:
    """Write the innermost line that names device_ids, with as many as are visible."""
    for place in reversed(error.places):
        edits = Edits(place.file)
        named = [
            one.value
            for node in ast.walk(tree_of(place.file))
            if isinstance(node, ast.Call) and node.lineno <= place.line <= (node.end_lineno or 0)
            for one in node.keywords
            if one.arg == "device_ids"
        ]
        if named:
            edits.replace(named[-1], str(visible))
            return edits.changes()
    before = "nn.DataParallel(model, device_ids=...)"
    return (Change(None, before, f"nn.DataParallel(model, device_ids={visible})   # as many as are visible"),)


@rule("DP105", "bypassed", "warning")
def bypassed(evidence: Evidence) -> Iterator[Found]:
    """The wrapped model is called past its wrapper, and runs on one GPU.

    What happens: `dp.module.predict(x)`, `dp.module.generate(...)` run the original on GPU 0; the others
        stay idle, and nothing says so.
    Why: only DataParallel's own call scatters.
    Before: self.net.module.predict(x)
    After: self.net(x)   # with forward(self, x, mode="predict"), say
    Seen by: a model that holds a DataParallel and ran without one call of it.
    References: pytorch/pytorch#32611, NVIDIA/sentiment-discovery#48
    """
    ran = [probe for probe in evidence.probes if probe.raised is None]
    if evidence.scan.wrappers and ran and not any(probe.calls for probe in ran):
        name = evidence.scan.wrappers[0] or "the wrapper"
        yield Found(
            name,
            f"`{name}` is a DataParallel that is never called: the model in it runs on one GPU",
            place=forward_place(evidence),
            repair=called_through(name, evidence),
        )


@rule("DP106", "nested", "error")
def nested(evidence: Evidence) -> Iterator[Found]:
    """DataParallel inside DataParallel.

    What happens: `Expected all tensors to be on the same device` with two stacked `Caught ... in replica`
        lines. A warning where a part that is not trained, a teacher say, is wrapped, and the whole is not as
        yet: then it was run as it is.
    Why: each replica of the outer one scatters over all GPUs again, from a copy that is not on the first.
    Before: nn.DataParallel(nn.Sequential(nn.DataParallel(encoder), head))
    After: nn.DataParallel(nn.Sequential(encoder, head))
    Seen by: a DataParallel among the modules of another.
    References: szq0214/MEAL-V2#24, huggingface/transformers#10583
    """
    paths = evidence.scan.wrappers
    for path in paths:
        outer = [other for other in paths if other != path and (not other or path.startswith(f"{other}."))]
        if outer:
            what = f"`{path}` is a DataParallel inside {listed([outer[0] or 'DataParallel'])}"
            own = _unwrapped(path, forward_place(evidence))
            part = attribute_of(path, "model")
            yield Found(
                path,
                what,
                None,
                before=f"{part}   # a DataParallel",
                after=f"{part} = {part}.module   # the outer one splits",
                repair=own,
            )
        elif path in evidence.scan.frozen and not evidence.is_program:
            part = attribute_of(path, "model")
            yield Found(
                path,
                f"`{path}` is in DataParallel already: in a DataParallel around the whole model it fails",
                None,
                None,
                "warning",
                before=f"{part}   # a DataParallel",
                after=f"{part} = {part}.module   # before nn.DataParallel(model)",
                repair=_unwrapped(path, forward_place(evidence)) or _made_plain(forward_place(evidence)),
            )


def _made_plain(forward: Place | None) -> Repair | None:
    """Write the only line of forward's file that wraps anything without the wrapper."""
    calls = [
        one
        for one in ast.walk(tree_of(forward.file) if forward else ast.Module([], []))
        if isinstance(one, ast.Call) and one.args
        if ast.unparse(one.func).rpartition(".")[2] == "DataParallel"
    ]
    if len(calls) != 1 or forward is None:
        return None
    edits = Edits(forward.file)
    edits.replace(calls[0], edits.applied_to(calls[0].args[0]))
    return repair_of(edits.changes())


def _unwrapped(path: str, forward: Place | None) -> Repair | None:
    """Write the only line that wraps an attribute, in the file of forward, without the wrapper."""
    name, found = path.rpartition(".")[2], []
    for node in ast.walk(tree_of(forward.file)) if forward else ():
        match node:
            case ast.Assign(
                targets=[ast.Attribute(attr=attr)], value=ast.Call(func=called, args=[inner, *_])
            ):
                if attr == name and ast.unparse(called).rpartition(".")[2] == "DataParallel":
                    found.append((node, inner))
    if len(found) != 1 or forward is None:
        return None
    statement, inner = found[0]
    function = function_at(Place(forward.file, statement.lineno))
    return function.own(statement, (statement.value, function.text(inner))) if function else None


@rule("DP107", "script-module", "warning")
def script_module(evidence: Evidence) -> Iterator[Found]:
    """A TorchScript module is to be replicated.

    What happens: `Cannot replicate network where python modules are children of ScriptModule`; scripted
        RNNs use weights of the wrong GPU; virtual GPUs cannot run it at all, so the rest of this check is
        left out.
    Why: replicate copies Python attributes, and a ScriptModule keeps its own outside Python.
    Before: nn.DataParallel(torch.jit.script(model))
    After: nn.DataParallel(model)
    Seen by: a ScriptModule among the modules.
    References: pytorch/pytorch#15421, pytorch/pytorch#34513
    """
    for path, kind in evidence.scan.module_types:
        if kind == "ScriptModule":
            name = path or evidence.scan.model
            what = f"`{name}` is a ScriptModule; the model was scanned and not run"
            part = attribute_of(path, "model") if path else "model"
            after = "...   # as it was before torch.jit.script, which no line can undo"
            yield Found("ScriptModule", what, before=f"{part}   # a ScriptModule", after=after)
            return


@rule("DP108", "lazy", "error")
def lazy(evidence: Evidence) -> Iterator[Found]:
    """A lazy module has not been initialised.

    What happens: `Modules with uninitialized parameters can't be used with DataParallel`.
    Why: shapes are set by the first forward, and that would happen in replicas that are thrown away.
    Before: nn.DataParallel(nn.LazyLinear(3))
    After: model(example); nn.DataParallel(model)   # one plain call first
    Seen by: an uninitialised parameter.
    References: pytorch/pytorch#44538
    """
    names = [held.path for held in evidence.scan.of_kind("lazy")]
    if names:
        what = f"{listed(names)} {'is' if len(names) == 1 else 'are'} not initialised yet"
        given = ", ".join(_needed(evidence)) or "example"
        after = f"model({given})   # one plain call first\nmodel = nn.DataParallel(model)"
        yield Found("lazy", what, before="model = nn.DataParallel(model)", after=after)


def _needed(evidence: Evidence) -> list[str]:
    """Name the arguments without which forward cannot be called."""
    function = function_at(forward_place(evidence))
    known = [name for name in evidence.scan.inputs if name.isidentifier()]
    if function is None:
        return known[:1]
    given = function.node.args
    optional = {one.arg for one in given.args[len(given.args) - len(given.defaults) :]}
    return [name for name in known if name not in optional]


@rule("DP109", "new-with-arguments", "error")
def new_with_arguments(evidence: Evidence) -> Iterator[Found]:
    """A class whose `__new__` wants arguments cannot be replicated.

    What happens: `TypeError: Model.__new__() missing 1 required positional argument`.
    Why: replicas are made by `cls.__new__(cls)`, without arguments.
    Before: def __new__(cls, config): ...
    After: def __new__(cls, *args, **kwargs): ...
    Seen by: this exception while replicas are made.
    References: torch/nn/modules/module.py, _replicate_for_data_parallel
    """
    for probe, error in failures(evidence):
        if error.stage == "replicate" and "__new__" in error.message:
            what = f"a replica cannot be made: {error.message}"
            changes = _new_without(error.message, evidence)
            yield Found(error.message, what, probe=probe, place=None, repair=repair_of(changes))


def _new_without(message: str, evidence: Evidence) -> tuple[Change, ...]:
    """Write the `__new__` of a class so that it can do without arguments; () where it reads them."""
    found = re.match(r"(\S+)\.__new__\(\)", message)
    files = [file for name, file in evidence.scan.classes if file and found and name.endswith(found[1])]
    new = method_at(found[1], "__new__", files[0]) if found and files else None
    if new is None or new.node.args.posonlyargs or new.node.args.kwonlyargs:
        return ()
    edits = Edits(new.file)
    given = new.node.args
    for one in given.args[1 : len(given.args) - len(given.defaults)]:
        edits.replace(one, f"{new.text(one)}=None")
    return edits.changes()
