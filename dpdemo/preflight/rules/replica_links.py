"""What ties a replica to the original model or to one GPU: DP302 to DP304, DP308, DP310, DP312, DP314."""

import re
from collections.abc import Iterator

from dpdemo.preflight.evidence import Evidence, Held, Place, Probe, Raised
from dpdemo.preflight.looking import crossed_devices, failures
from dpdemo.preflight.registry import Found, rule


def _names_of(error: Raised) -> str:
    """Join the code of the user's lines that an exception went through."""
    return "\n".join(place.code for place in error.places)


def _suspects(evidence: Evidence, held: tuple[Held, ...]) -> Iterator[tuple[Held, Place | None, Probe, bool]]:
    """List what is held and could have crossed devices, and whether the lines that failed name it."""
    crossings = list(crossed_devices(evidence))
    for one in held:
        name = one.path.rpartition(".")[2]
        for probe, error in crossings:
            if re.search(rf"\.{re.escape(name)}\b", _names_of(error)):
                yield one, error.place, probe, True
                break
        else:
            if crossings:
                yield one, one.place, crossings[0][0], False


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
    held = tuple(one for one in evidence.scan.of_kind("tensor") if "on cuda" in one.detail)
    for one, place, probe, is_named in _suspects(evidence, held):
        yield Found(
            one.path,
            f"`{one.path}` is {one.detail}, and neither parameter nor buffer: replicas on other GPUs use "
            "that very tensor" + ("" if is_named else " too"),
            one.place or place,
            probe,
            None if is_named else "warning",
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
                )


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
            yield Found(
                path, f"`{path or evidence.scan.model}` is compiled: every replica calls the original's code"
            )
    for one in evidence.scan.of_kind("compiled"):
        yield Found(one.path, f"`{one.path}`: a compiled forward is the original's in every replica")
    held = (*evidence.scan.of_kind("callable"), *evidence.scan.of_kind("module"))
    for one, place, probe, is_named in _suspects(evidence, held):
        what = f"a list or attribute with a {one.detail}" if one.kind == "module" else one.detail
        shadows = one.path.rpartition(".")[2] == "forward"
        yield Found(
            one.path,
            f"`{one.path}` is {what}: in every replica it is the original's, on GPU 0",
            one.place or place,
            probe,
            None if is_named or shadows else "warning",
        )


# the words of 2.13, and of 2.11
_NO_INPUTS = r"argument to .?grad\(\).? cannot be empty|grad requires non-empty inputs"


@rule("DP308", "empty-parameters", "error")
def empty_parameters(evidence: Evidence) -> Iterator[Found]:
    """`parameters()` is empty in replicas.

    What happens: `StopIteration` from `next(self.parameters())`, `inputs argument to grad() cannot be
        empty`; a penalty summed over them is 0, and freezing them does nothing, without a word.
        ParameterList and ParameterDict alike.
    Why: a replica's parameters are plain tensors, set as attributes; nothing is registered.
    Before: device = next(self.parameters()).device
    After: device = x.device   # or self.fc.weight.device; penalties belong outside forward
    Seen by: calls of parameters(), named_parameters() and requires_grad_() in replicas, where results or
        gradients differ or forward fails.
    References: pytorch/pytorch#40457, huggingface/transformers#8145
    """
    for probe, call in evidence.calls:
        failed = [replica.raised for replica in call.replicas if replica.raised is not None]
        raised = any(
            error.type == "StopIteration" or re.search(_NO_INPUTS, error.message) for error in failed
        )
        if not raised and not _is_off(probe):
            continue
        for event in call.events:
            if event.kind in ("named_parameters", "requires_grad_"):
                result = str(failed[0]) if raised else "results or gradients differ from those of one GPU"
                yield Found(
                    str(event.place),
                    f"`{event.detail}.parameters()` is empty in replicas: {result}",
                    event.place,
                    probe,
                )


def _is_off(probe: Probe) -> bool:
    """Whether numbers differ for another reason than chunks."""
    comparison = probe.comparison
    if comparison.values_equal is False and comparison.equals_chunkwise is False:
        return True
    is_even = probe.split is not None and probe.split.is_even and probe.mode == "eval"
    return comparison.gradients_equal is False and comparison.sum_factor is None and is_even


@rule("DP310", "hooks", "warning")
def hooks(evidence: Evidence) -> Iterator[Found]:
    """A hook is called once for each replica.

    What happens: it sees chunks, on different GPUs, in the order of threads; what it stores by name is that
        of the last replica, and `module` is not the module that it was registered on.
    Why: replicas share the dict of hooks of their original.
    Before: features["fc"] = output
    After: features[output.device.index] = output   # join in this order; or return them from forward
    Seen by: hooks on modules of the model, other than PyTorch's own.
    References: pytorch/pytorch#42478, antoinebrl/torchextractor#1
    """
    for held in evidence.scan.of_kind("hook"):
        yield Found(
            held.path + held.detail,
            f"the hook `{held.detail.rpartition('.')[2]}` on `{held.path}` runs {evidence.num_gpus} times "
            "a call, with a "
            "chunk each time",
            held.place,
        )


@rule("DP312", "deepcopy-in-forward", "error")
def deepcopy_in_forward(evidence: Evidence) -> Iterator[Found]:
    """Forward copies a module.

    What happens: `Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol`.
    Why: a replica's parameters are results of a broadcast, not leaves.
    Before: fast = copy.deepcopy(self.fc)
    After: torch.func.functional_call(self.fc, weights, x)
    Seen by: this exception in a replica.
    References: pytorch/pytorch#33785, pytorch/pytorch#54580
    """
    for probe, error in failures(evidence):
        if "deepcopy protocol" in error.message and error.stage == "replica":
            yield Found(str(error.place), "parameters of a replica cannot be deep-copied", error.place, probe)


@rule("DP314", "parameter-subclass", "error")
def parameter_subclass(evidence: Evidence) -> Iterator[Found]:
    """A parameter has attributes or a class of its own, which replicas lose.

    What happens: `'Tensor' object has no attribute 'quant_state'` in replica 0; `isinstance(w,
        nn.Parameter)` is False.
    Why: a broadcast returns plain tensors.
    Before: self.fc.weight.scale = 0.5
    After: self.weight_scale = 0.5   # an attribute of the module
    Seen by: attributes and classes of parameters, and an exception that names them.
    References: huggingface/transformers#45407
    """
    for held in evidence.scan.of_kind("parameter"):
        for probe, error in failures(evidence):
            lost = re.search(r"'Tensor' object has no attribute '(\w+)'", error.message)
            if lost:
                yield Found(
                    held.path,
                    f"`{held.path}` ({held.detail}) is a plain tensor in replicas: {error.message}",
                    error.place,
                    probe,
                )


_KNOWN = (
    "same device|has no attribute|missing \\d+ required|Expected hidden|more than 1 "
    "(value|spatial)|deepcopy protocol|"
    "cannot be empty|requires non-empty inputs|Broadcast(Backward)? is a view and|"
    "batch_sizes should always|hx should|1D CPU int64"
)


@rule("DP390", "replica-raised", "error",
      unless=("DP106", "DP201", "DP205", "DP207", "DP212", "DP214", "DP309"))  # fmt: skip
def replica_raised(evidence: Evidence) -> Iterator[Found]:
    """Forward fails in a replica and not on one GPU, for a reason that no other rule knows.

    What happens: an exception with `Caught ... in replica i on device d`.
    Why: a replica is not quite the model: it sees a chunk, on another GPU, from another thread.
    Before: assert len(x) == 32
    After: assert len(x) <= 32
    Seen by: an exception in a replica.
    References: torch/nn/parallel/parallel_apply.py
    """
    for probe, error in failures(evidence):
        is_known = error.type == "StopIteration" or re.search(_KNOWN, error.message)
        if error.stage == "replica" and error.replica is not None and not is_known:
            yield Found(str(error.place), f"replica {error.replica} raises {error}", error.place, probe)


@rule("DP391", "two-devices", "error",
      unless=("DP106", "DP208", "DP302", "DP303", "DP304", "DP309", "DP602"))  # fmt: skip
def two_devices(evidence: Evidence) -> Iterator[Found]:
    """A replica mixes tensors of two GPUs, for a reason that no other rule knows.

    What happens: `Expected all tensors to be on the same device, but found at least two devices`.
    Why: something leads from the replica back to the original, or to one fixed GPU.
    Before: y = x + GLOBAL_TENSOR
    After: y = x + GLOBAL_TENSOR.to(x.device)
    Seen by: this exception in a replica.
    References: pytorch/pytorch#101402
    """
    for probe, error in crossed_devices(evidence):
        yield Found(str(error.place), f"replica {error.replica}: {error}", error.place, probe)
