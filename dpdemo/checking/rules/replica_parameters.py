"""Parameters, which replicas hold as plain tensors: DP308, DP312, DP314."""

import re
from collections.abc import Iterator

from dpdemo.checking.errors import tells
from dpdemo.checking.evidence import Evidence, Probe
from dpdemo.checking.fills import swapped
from dpdemo.checking.questions.failures import (
    BY_NAME,
    comes_of_no_parameters,
    failures,
    numbers_for_tensors,
    questions_for_parameters,
)
from dpdemo.checking.questions.words import attribute_at
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import Advice, Hit, advise


@rule("DP308", "empty-parameters", "error")
def empty_parameters(evidence: Evidence) -> Iterator[Hit]:
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
        errors = [error for error in call.errors if comes_of_no_parameters(error, call)]
        is_off = _is_off(probe) or any(numbers_for_tensors(probe, call))
        if not errors and not is_off and not probe.single.writes_parameters:
            continue
        result = "results or gradients differ from those of one GPU"
        if not is_off:
            result = "what forward writes to them on one GPU, it writes to none here"
        explains = ("assigned", *(error.symptom for error in errors))
        asked = questions_for_parameters(call)
        by_name = [event for event in asked if event.place and BY_NAME.search(event.place.code)]
        for event in by_name or asked:  # what is made of them goes through them again
            way = "state_dict" if event.kind == "state_dict" else "parameters"
            what = f"`{event.detail}.{way}()` is empty in replicas: {errors[0] if errors else result}"
            advice = _asked(evidence, event.detail) if errors or is_off else _UPDATE
            yield Hit(str(event.place), what, event.place, probe, advice=advice, explains=explains)


_UPDATE = advise(
    "model.module.update()   # these lines, in a method that is called after the call or the step"
)


def _asked(evidence: Evidence, module: str) -> Advice:
    """Advise the model's first parameter by its name, where the model itself is asked for all of them."""
    paths = evidence.scan.parameters if module == evidence.scan.model else ()
    return advise(
        "{x}.device   # or {parameter}.device; penalties over all parameters belong outside forward",
        fill=swapped(r"next\((?:iter\()?self\.parameters\(\)\)?\)", "{parameter}"),
        parameter=attribute_at(paths[0]) if paths else "self.fc.weight",
    )


def _is_off(probe: Probe) -> bool:
    """Return whether numbers differ for another reason than chunks."""
    comparison = probe.comparison
    if comparison.values_equal is not True and comparison.equals_chunkwise is False:
        return True
    return comparison.gradients_equal is False and comparison.loss_path is None


@rule("DP312", "deepcopy-in-forward", "error")
def deepcopy_in_forward(evidence: Evidence) -> Iterator[Hit]:
    """Forward copies a module.

    What happens: `Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol`.
    Why: a replica's parameters are results of a broadcast, not leaves.
    Before: fast = copy.deepcopy(self.fc)
    After: torch.func.functional_call(self.fc, weights, x)
    Seen by: this exception in a replica.
    References: pytorch/pytorch#33785, pytorch/pytorch#54580
    """
    for probe, error in failures(evidence):
        if tells("DP312", error) and error.stage == "replica":
            what = "parameters of a replica cannot be deep-copied"
            yield Hit(str(error.place), what, error.place, probe, explains=(error.symptom,))


@rule("DP314", "parameter-subclass", "error")
def parameter_subclass(evidence: Evidence) -> Iterator[Hit]:
    """A parameter has attributes or a class of its own, which replicas lose.

    What happens: `'Tensor' object has no attribute 'quant_state'` in replica 0; `isinstance(w,
        nn.Parameter)` is False.
    Why: a broadcast returns plain tensors.
    Before: self.fc.weight.scale = 0.5
    After: self.weight_scale = 0.5   # an attribute of the module
    Seen by: attributes and classes of parameters, and an exception that names them.
    References: huggingface/transformers#45407
    """
    held = evidence.scan.of_kind("parameter")
    for probe, error in failures(evidence):
        lost = re.search(r"'Tensor' object has no attribute '(\w+)'", error.message)
        if lost is None:
            continue
        with_it = [item for item in held if lost[1] in item.names] or list(held)
        for item in with_it[:1]:
            more = f" (and {len(with_it) - 1} more like it)" if len(with_it) > 1 else ""
            kind = f"attribute {', '.join(item.names)}" if item.names else f"type {item.type}"
            what = f"`{item.path}` ({kind}) is a plain tensor in replicas: {error.message}{more}"
            advice = advise(
                "self.weight_{name}   # an attribute of the module; set it in __init__", name=lost[1]
            )
            yield Hit(item.path, what, error.place, probe, advice=advice, explains=(error.symptom,))
