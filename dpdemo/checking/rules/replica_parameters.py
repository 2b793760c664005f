"""What replicas have in place of parameters: DP308, DP312, DP314."""

import re
from collections.abc import Iterator

from dpdemo.checking.aftercall import line_outside
from dpdemo.checking.derivatives import without_copy
from dpdemo.checking.evidence import Evidence, Probe, Raised
from dpdemo.checking.lines import attribute_of, function_at
from dpdemo.checking.looking import failures, parameters_at, reads_state
from dpdemo.checking.registry import Found, rule
from dpdemo.reports.check import Place

_FEW = 8
"""So many parameters can be written out."""

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
        for error in failed:
            if reads_state(error) and error.place is not None:
                yield Found(
                    str(error.place),
                    f"`state_dict()` has no parameters in replicas: {error}",
                    error.place,
                    probe,
                    None,
                    *_state_repair(error.place),
                )
        raised = any(
            error.type == "StopIteration" or re.search(_NO_INPUTS, error.message) for error in failed
        )
        if not raised and not _is_off(probe) and not probe.single.writes_parameters:
            continue
        result = "results or gradients differ from those of one GPU"
        if not _is_off(probe):
            result = "what forward writes to them on one GPU, it writes to none here"
        asked = [event for event in call.events if event.kind in ("named_parameters", "requires_grad_")]
        by_name = [event for event in asked if event.place and "parameters(" in event.place.code]
        for event in by_name or asked:  # what is made of them goes through them again
            is_loop = event.place is not None and re.match(r"for .* in .*parameters\(\)", event.place.code)
            own = line_outside(event.place, evidence, call) if is_loop else None
            yield Found(
                str(event.place),
                f"`{event.detail}.parameters()` is empty in replicas: {failed[0] if raised else result}",
                own.place if own else event.place,
                probe,
                None,
                *(own[1:] if own else _parameter_repair(event.place, evidence)),
            )


def _state_repair(place: Place) -> tuple[str, str]:
    """Write a line that looks a parameter up in a state_dict, and one that reads the attribute."""
    found = re.search(r"(self[\w.\[\]]*)\.state_dict\(\)\[[\"']([\w.]+)[\"']\]", place.code)
    return (place.code, place.code.replace(found[0], attribute_of(found[2], found[1]))) if found else ("", "")


def _parameter_repair(place: Place | None, evidence: Evidence) -> tuple[str, str]:
    """Write a line that asks for parameters, and one that asks for what replicas have."""
    code = place.code if place else ""
    if not code:
        return "", ""
    given = (*evidence.scan.inputs, "x")[0]
    first = re.search(r"next\((?:iter\()?([a-z]\w*(?:\.\w+|\[\d+\])*?)\.parameters\(\)\)?\)", code)
    if first:
        me, _, owner = re.sub(r"\[(\d+)\]", r".\1", first[1]).partition(".")
        known = [
            name for name in parameters_at(place, evidence) if name.startswith(f"{owner}." if owner else "")
        ]
        function = function_at(place)
        if f"{first[0]}.device" in code and function is not None and given in function.arguments():
            return code, code.replace(f"{first[0]}.device", f"{given}.device")
        return code, code.replace(first[0], attribute_of(known[0], me) if known else f"{first[1]}.weight")
    named = re.search(r"dict\((self[\w.\[\]]*)\.named_parameters\(\)\)", code)
    if named:
        _, _, owner = re.sub(r"\[(\d+)\]", r".\1", named[1]).partition(".")
        dot = f"{owner}." if owner else ""
        inside = [name for name in parameters_at(place, evidence) if name.startswith(dot)]
        names = [name.removeprefix(dot) for name in inside]
        if 0 < len(names) <= _FEW:
            items = ", ".join(f'"{name}": {attribute_of(name, named[1])}' for name in names)
            return code, code.replace(named[0], f"{{{items}}}")
    if "grad(" in code:
        few = (
            evidence.scan.parameters
            if len(evidence.scan.parameters) <= _FEW
            else (*evidence.scan.parameters[:1],)
        )
        listed = ", ".join(attribute_of(name) for name in few) + ("" if len(few) > 1 else ", ...")
        return code, re.sub(r"(?:list|tuple)?\(?self\.parameters\(\)\)?", f"[{listed}]", code)
    gone_through = re.search(r"\bin (self[\w.\[\]]*)\.parameters\(\)", code)
    names = _parameters_of(gone_through[1], place, evidence) if gone_through else []
    outside = re.sub(r"\bself\b", "model.module", code)
    after = f"{outside}   # outside, after the call"
    if gone_through and 0 < len(names) <= _FEW:
        after = code.replace(f"{gone_through[1]}.parameters()", f"[{', '.join(map(attribute_of, names))}]")
    return code, after


def _parameters_of(owner: str, place: Place | None, evidence: Evidence) -> list[str]:
    """List the parameters of `self.layer`, as the module names them whose method a line stands in."""
    _, _, path = re.sub(r"\[(\d+)\]", r".\1", owner).partition(".")
    return [name for name in parameters_at(place, evidence) if name.startswith(f"{path}." if path else "")]


def _is_off(probe: Probe) -> bool:
    """Return whether numbers differ for another reason than chunks."""
    comparison = probe.comparison
    if comparison.values_equal is False and comparison.equals_chunkwise is False:
        return True
    is_plain = probe.mode == "eval" or comparison.values_equal is True
    is_even = probe.split is not None and probe.split.is_even and is_plain
    return comparison.gradients_equal is False and comparison.loss_path is None and is_even


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
            own = without_copy(error.place, evidence)
            yield Found(
                str(error.place),
                "parameters of a replica cannot be deep-copied",
                own.place if own else error.place,
                probe,
                before=own.before if own else "",
                after=own.after if own else "",
            )


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
                    None,
                    *_attribute_repair(error, lost[1]),
                )


def _attribute_repair(error: Raised, name: str) -> tuple[str, str]:
    """Write the line that reads a parameter's attribute, and one that reads it of the module."""
    code = error.place.code if error.place else ""
    after = re.sub(
        rf"\bself\.([\w.]+)\.{name}\b", lambda one: f"self.{one[1].replace('.', '_')}_{name}", code
    )
    return (code, f"{after}   # set on self in __init__") if after != code else ("", "")
