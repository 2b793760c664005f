"""Pitfalls of the wrapper itself: DP101 to DP108."""

import re
from collections.abc import Iterator

from dpdemo.checking.errors import tells
from dpdemo.checking.evidence import Evidence, RaisedError
from dpdemo.checking.fills import swapped
from dpdemo.checking.questions.failures import failures
from dpdemo.checking.questions.words import attribute_at, listed
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import Advice, Hit, advise, first_call


def _everything_raised(evidence: Evidence) -> Iterator[RaisedError]:
    if evidence.factory_raised is not None:
        yield evidence.factory_raised
    for probe in evidence.probes:
        if probe.single.raised is not None:
            yield probe.single.raised
    for _, error in failures(evidence):
        yield error


@rule("DP101", "wrapper-attribute", "error")
def wrapper_attribute(evidence: Evidence) -> Iterator[Hit]:
    """The wrapper is used as if it were the model.

    What happens: `AttributeError: 'DataParallel' object has no attribute 'fc'`, `TypeError: object of type
        'DataParallel' has no len()`.
    Why: DataParallel is a module with one child, `module`; it forwards calls and nothing else.
    Before: dp.fc.weight
    After: dp.module.fc.weight
    Seen by: such an exception, while the model is built or called, or at the end of a program.
    References: pytorch/pytorch#16885, pytorch/pytorch#43329, huggingface/transformers#20583
    """
    for error in _everything_raised(evidence):
        if tells("DP101", error):
            yield wrapper_error(error)


def wrapper_error(error: RaisedError) -> Hit:
    """Report an exception that names the wrapper."""
    missing = re.search(r"has no attribute '(\w+)'", error.message)
    if missing is None:
        what = f"DataParallel is used as the model, which is its `.module`: {error}"
        advice = advise("dp.module   # the model itself, where more than a call is wanted of it")
        return Hit(error.message, what, error.place, advice=advice)
    name = missing[1]
    what = f"`{name}` is looked up on DataParallel, and is `.module.{name}`"
    advice = advise("dp.module.{name}", fill=swapped(r"\.{name}\b", ".module.{name}"), name=name)
    return Hit(name, what, error.place, advice=advice)


@rule("DP102", "state-dict-prefix", "error")
def state_dict_prefix(evidence: Evidence) -> Iterator[Hit]:
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
            code = "dp.module.load_state_dict(state)"
            if event.detail.startswith("module."):
                code = (
                    'model.load_state_dict({key.removeprefix("module."): one for key, one in state.items()})'
                )
            what = (
                f"none of the loaded keys, such as `{event.detail}`, matches: they differ by the prefix "
                "`module.`"
            )
            yield Hit(event.detail, what, event.place, advice=advise("{code}", code=code))


@rule("DP103", "wrong-device", "error")
def wrong_device(evidence: Evidence) -> Iterator[Hit]:
    """Parameters or buffers are not on the first GPU of the wrapper.

    What happens: `module must have its parameters and buffers on device cuda:0 (device_ids[0])`.
    Why: replicas are copied from device_ids[0]; DataParallel checks this at each call and moves nothing
        itself. A model that is spread over several GPUs by hand uses them already.
    Before: nn.DataParallel(model.to("cuda:1"), device_ids=[0, 1])
    After: nn.DataParallel(model.to("cuda:0"), device_ids=[0, 1])
    Seen by: the device of each parameter and buffer.
    References: pytorch/pytorch#17065, ethnhe/FFB6D#4
    """
    strays = evidence.scan.strays
    if not strays:
        return
    devices = sorted({device for _, device in strays})
    wanted = f"cuda:{(*evidence.scan.device_ids, 0)[0]}"
    what = f"{listed([name for name, _ in strays])} on {' and '.join(devices)}, and device_ids[0] is {wanted}"
    after = 'nn.DataParallel(model.to("{device}"))'
    if evidence.scan.is_spread:
        what = f"{what}; the model is spread over several GPUs by itself"
        after = "model(x)   # spread by hand, it needs no DataParallel; or "
        after += "DistributedDataParallel, a process for each copy"
    path, device = strays[0]
    before = "nn.DataParallel(model)   # {path} on {at}"
    advice = advise(after, before=before, path=path, at=device, device=wanted)
    yield Hit("strays", what, evidence.scan.forward, advice=advice)


@rule("DP104", "device-ids", "error")
def device_ids(evidence: Evidence) -> Iterator[Hit]:
    """The list of device_ids cannot be, or does not split anything.

    What happens: `AssertionError: Invalid device id` for a GPU that is not visible, `IndexError` for an
        empty list; with one GPU named twice both replicas run there, in silence.
    Why: ids count the visible GPUs from 0, and CUDA_VISIBLE_DEVICES renumbers them.
    Before: nn.DataParallel(model, device_ids=[2, 3])   # CUDA_VISIBLE_DEVICES=2,3
    After: nn.DataParallel(model, device_ids=[0, 1])
    Seen by: the exception of DataParallel's constructor; or an id that comes twice.
    References: pytorch/pytorch#9814, HRNet/HRNet-Semantic-Segmentation#30
    """
    error = evidence.factory_raised
    if error is not None and error.type in {"AssertionError", "IndexError"}:
        what = f"DataParallel cannot be made over these device_ids, with {evidence.num_gpus} GPUs: {error}"
        advice = _over("...", list(range(evidence.num_gpus)))
        yield Hit("device_ids", what, error.place, advice=advice)
    ids = evidence.scan.device_ids
    twice = sorted({number for number in ids if ids.count(number) > 1})
    if twice:
        what = f"cuda:{twice[0]} is named {ids.count(twice[0])} times in device_ids"
        yield Hit("device_ids", what, advice=_over(list(ids), list(dict.fromkeys(ids))))


def _over(ids: object, better: object) -> Advice:
    """Advise other device_ids."""
    before, after = (f"nn.DataParallel(model, device_ids={each})" for each in (ids, better))
    return advise(after, before=before)


@rule("DP105", "bypassed", "warning")
def bypassed(evidence: Evidence) -> Iterator[Hit]:
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
        path = evidence.scan.wrappers[0]
        what = (
            f"`{path or 'the wrapper'}` is a DataParallel that is never called: the model in it runs on one "
            "GPU"
        )
        code = 'y = {name}(x)   # the wrapper itself; forward may take mode="predict", say'
        advice = advise(code, name=attribute_at(path) if path else "dp")
        yield Hit(path or "the wrapper", what, evidence.scan.forward, advice=advice)


@rule("DP106", "nested", "error", explains=("moved", "raises", "devices", "difference"))
def nested(evidence: Evidence) -> Iterator[Hit]:
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
        after = "{part} = {part}.module   # before nn.DataParallel(model)"
        advice = advise(after, before="{part}   # a DataParallel", part=attribute_at(path, "model"))
        outer = [other for other in paths if other != path and (not other or path.startswith(f"{other}."))]
        if outer:
            what = f"`{path}` is a DataParallel inside {listed([outer[0] or 'DataParallel'])}"
            yield Hit(path, what, advice=advice)
        elif path in evidence.scan.frozen and not evidence.is_program:
            what = f"`{path}` is in DataParallel already: in a DataParallel around the whole model it fails"
            yield Hit(path, what, severity="warning", advice=advice)


@rule("DP107", "script-module", "warning")
def script_module(evidence: Evidence) -> Iterator[Hit]:
    """A TorchScript module is to be replicated, or the wrapper traced.

    What happens: `Cannot replicate network where python modules are children of ScriptModule`; scripted
        RNNs use weights of the wrong GPU; virtual GPUs cannot run it at all, so the rest of this check is
        left out. Tracing the wrapper fails: `Cannot insert a Tensor that requires grad as a constant`.
    Why: replicate copies Python attributes, and a ScriptModule keeps its own outside Python. Tracing belongs
        to a thread, and replicas run in others.
    Before: nn.DataParallel(torch.jit.script(model)); torch.jit.trace(dp, x)
    After: nn.DataParallel(model); torch.jit.trace(dp.module, x)
    Seen by: a ScriptModule among the modules; or these exceptions.
    References: pytorch/pytorch#15421, pytorch/pytorch#34513
    """
    for path, kind in evidence.scan.module_types:
        if kind == "ScriptModule":
            what = f"`{path or evidence.scan.model}` is a ScriptModule; the model was scanned and not run"
            part = attribute_at(path, "model") if path else "model"
            after = "nn.DataParallel(model)   # as it was before torch.jit"
            advice = advise(after, before="{part}   # a ScriptModule", part=part)
            yield Hit("ScriptModule", what, advice=advice)
            return


@rule("DP108", "lazy", "error")
def lazy(evidence: Evidence) -> Iterator[Hit]:
    """A lazy module has not been initialised.

    What happens: `Modules with uninitialized parameters can't be used with DataParallel`.
    Why: shapes are set by the first forward, and that would happen in replicas that are thrown away.
    Before: nn.DataParallel(nn.LazyLinear(3))
    After: model(example); nn.DataParallel(model)   # one plain call first
    Seen by: an uninitialised parameter.
    References: pytorch/pytorch#44538
    """
    paths = [held.path for held in evidence.scan.of_kind("lazy")]
    if paths:
        what = f"{listed(paths)} {'is' if len(paths) == 1 else 'are'} not initialised yet"
        given = ", ".join(evidence.scan.required) or "example"
        yield Hit("lazy", what, advice=first_call(f"model({given})"))
