"""What replicas have in place of parameters: DP308, DP312, DP314."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from dpdemo.checking.derivatives import without_copy
from dpdemo.checking.evidence import Call, Event, Evidence, Probe
from dpdemo.checking.looking import failures, is_off, reads_state
from dpdemo.checking.methods import functions_like, methods_in
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.parameters import with_replicas_own, without_state
from dpdemo.checking.rewriting.weightwrites import line_outside
from dpdemo.checking.source import Function, function_at, tree_of
from dpdemo.checking.unregistered import (
    BY_NAME,
    comes_of_no_parameters,
    numbers_for_tensors,
    questions_for_parameters,
)
from dpdemo.reports.check import Change, Place


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
        looked_up = {error.place: error for error in failed if reads_state(error)}
        for place, error in looked_up.items():
            if place is not None:
                what = f"`state_dict()` has no parameters in replicas: {error}"
                yield Found(str(place), what, place, probe, None, *without_state(place))
        asked = questions_for_parameters(call)
        raised = next((error for error in failed if comes_of_no_parameters(error, call)), None)
        is_off = _is_off(probe) or any(numbers_for_tensors(probe, call))
        if raised is None and not is_off and not probe.single.writes_parameters:
            continue
        result = "results or gradients differ from those of one GPU"
        if not is_off:
            result = "what forward writes to them on one GPU, it writes to none here"
        by_name = [event for event in asked if event.place and re.search(BY_NAME, event.place.code)]
        for event in by_name or asked:  # what is made of them goes through them again
            if event.place in looked_up:
                continue
            before, after, own = _repair(event, evidence, call)
            way = "state_dict" if event.kind == "state_dict" else "parameters"
            what = f"`{event.detail}.{way}()` is empty in replicas: {raised or result}"
            subject = str(own.place if own else event.place)
            yield Found(subject, what, event.place, probe, None, before, after, repair=own)


def _repair(event: Event, evidence: Evidence, call: Call) -> tuple[str, str, Repair | None]:
    """Write the line that asks for parameters, and what to write for it, here or around the call."""
    place = event.place
    if place is None:
        return "", "", None
    is_loop = place.code.startswith("for ")
    if is_loop or event.kind == "state_dict":
        own = line_outside(place, evidence, call)
        if own is not None:
            return own.before, own.after, own
    # two models' are gone through to write to one of them: that is lost, however a replica reads them
    if is_loop and place.code.count("parameters()") > 1:
        return "", "", None
    before, after = with_replicas_own(place, evidence)
    if after or "parameters(" in place.code:
        return before, after, None
    outside = re.sub(r"\bself\b", "model.module", place.code)
    return place.code, f"{outside}   # outside, after the call", None


def _is_off(probe: Probe) -> bool:
    """Return whether numbers differ for another reason than chunks."""
    comparison = probe.comparison
    if comparison.values_equal is not True and comparison.equals_chunkwise is False:
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
                error.place,
                probe,
                repair=own,
            )


@rule("DP314", "parameter-subclass", "error")
def parameter_subclass(evidence: Evidence) -> Iterator[Found]:
    """A parameter has attributes or a class of its own, which replicas lose.

    What happens: `'Tensor' object has no attribute 'quant_state'` in replica 0; `isinstance(w,
        nn.Parameter)` is False.
    Why: a broadcast returns plain tensors.
    Before: self.fc.weight.scale = 0.5
    After: self.weight_scale = 0.5   # an attribute of the module
    Seen by: attributes and classes of parameters, and an exception that names them; or a line that asks for
        the class, or whether the attribute is there, where results differ for no other reason.
    References: huggingface/transformers#45407
    """
    yield from _asked_in_vain(evidence)
    held = evidence.scan.of_kind("parameter")
    for probe, error in failures(evidence):
        lost = re.search(r"'Tensor' object has no attribute '(\w+)'", error.message)
        if lost is None:
            continue
        with_it = [one for one in held if lost[1] in one.detail] or list(held)
        for one in with_it[:1]:
            more = f" (and {len(with_it) - 1} more like it)" if len(with_it) > 1 else ""
            yield Found(
                one.path,
                f"`{one.path}` ({one.detail}) is a plain tensor in replicas: {error.message}{more}",
                probe=probe,
                place=error.place,
                repair=repair_of(_attribute_repair(error.place, lost[1])),
            )


_IS_PARAMETER = r"isinstance\(([^()]+), (torch\.)?(nn\.)?Parameter\)"
_HAS_ATTRIBUTE = r"\b(getattr|hasattr)\(([^(),]+), ['\"](\w+)['\"]"


def _asked_in_vain(evidence: Evidence) -> Iterator[Found]:
    """Tell of lines that ask parameters for their class or attributes, where results are not the chunks'."""
    off = (one for one in evidence.probes if is_off(one))
    probe = next((one for one in off if not any(change.parallel_changed for change in one.changes)), None)
    held = evidence.scan.of_kind("parameter")
    names = {name for one in held for name in one.detail.removeprefix("attribute ").split(", ")}
    seen: set[Place] = set()
    for function in _methods(evidence) if probe else ():
        for statement in function.statements() if function.node.name != "__init__" else ():
            code = function.text(statement).partition("\n")[0]
            place = Place(function.file, statement.lineno, function.node.name, code)
            if place in seen:
                continue
            if found := re.search(_IS_PARAMETER, code):
                seen.add(place)
                after = code.replace(found[0], f"isinstance({found[1]}, torch.Tensor)")
                what = f"`{found[0]}` is False in replicas, whose parameters are plain tensors"
                yield Found(found[1], what, place, probe, repair=Repair(place, code, after))
            elif (found := re.search(_HAS_ATTRIBUTE, code)) and found[3] in names:
                seen.add(place)
                what = f"`{found[2]}` has no `{found[3]}` in replicas, whose parameters are plain tensors"
                repair = repair_of(_attribute_repair(place, found[3]))
                yield Found(f"{found[2]}.{found[3]}", what, place, probe, repair=repair)


def _methods(evidence: Evidence) -> Iterator[Function]:
    """List the methods of the user's classes in the model, those of the model's own first."""
    forward = function_at(evidence.scan.forward)
    yield from functions_like(forward) if forward else ()
    for name, file in evidence.scan.classes:
        yield from methods_in(file, name.rpartition(".")[2], 0).values() if file else ()


def _attribute_repair(place: Place | None, name: str) -> tuple[Change, ...]:
    """Write the lines that set and read parameters' attributes, and ones that have them of the module."""
    read = rf"\bself\.([\w.\[\]]+)(\.{name}\b|, ['\"]{name}['\"])"
    found = re.search(read, place.code) if place else None
    if place is None or found is None:
        return ()
    edits, is_set = Edits(place.file), False
    uses = [pair for one in ast.walk(tree_of(place.file)) if (pair := _use_of(one, name)) is not None]
    given = {ast.unparse(owner) for one, owner in uses if _is_stored(one)}
    ends = {f".{text.partition('.')[2]}" for text in given if "." in text} | {f".{found[1]}"}
    for node, owner in uses:
        text = ast.unparse(owner)
        end = next((one for one in ends if text.endswith(one)), None)
        if end is not None:
            own = re.sub(r"\W+", "_", end.strip(".")) + f"_{name}"
            holder = text.removesuffix(end)
            if isinstance(node, ast.Call):
                edits.replace(node.args[0], holder)
                edits.replace(node.args[1], f'"{own}"')
            else:
                edits.replace(node, f"{holder}.{own}")
            is_set = is_set or _is_stored(node)
    changes = edits.changes()
    if is_set:
        return changes
    return (
        replace(changes[0], after=f"{changes[0].after}   # which is to be set on self, in __init__"),
        *changes[1:],
    )


def _use_of(node: ast.AST, name: str) -> tuple[ast.Attribute | ast.Call, ast.expr] | None:
    """Return an attribute of this name, or a call that asks for it, with what it is of; None of all else."""
    match node:
        case ast.Attribute(value=owner, attr=attr) if attr == name:
            return node, owner
        case ast.Call(
            func=ast.Name(id="getattr" | "hasattr" | "setattr"), args=[owner, ast.Constant(value), *_]
        ):
            return (node, owner) if value == name else None
    return None


def _is_stored(node: ast.Attribute | ast.Call) -> bool:
    """Whether an attribute gets a value there."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "setattr"
    return isinstance(node.ctx, ast.Store)
