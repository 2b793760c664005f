"""An RNN's hidden state, with the batch on dimension 1: handed over, or made, so that a chunk has its own."""

import ast
import re
from dataclasses import replace

from dpdemo.checking.evidence import Call, Evidence
from dpdemo.checking.looking import call_of, is_batch, result_place, top_name
from dpdemo.checking.methods import functions_like
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.calling import around_call
from dpdemo.checking.rewriting.handing import Given, handed_over
from dpdemo.checking.rewriting.turned import Turned, pair_of_states, turned_results
from dpdemo.checking.source import Function, function_at
from dpdemo.reports.check import Change, Place

_MAKERS = ("zeros", "randn", "new_zeros", "ones", "rand", "empty")
_STATE_DIMS = 3


def _own_state(place: Place | None, given: str) -> Repair | None:
    """Write forward's line that makes a state, and one that makes it for as many rows as there are."""
    function = function_at(place)
    for statement in function.statements() if function else ():
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in _MAKERS and len(node.args) >= _STATE_DIMS:
                assert function is not None  # noqa: S101 - it has statements
                own = function.own(statement, (node.args[1], f"{given}.size(0)"))
                return own if own.before != own.after else None
    return _state_of_a_method(function, given) if function else None


def _state_of_a_method(function: Function, given: str) -> Repair | None:
    """Write forward's call of a method that makes a state, with as much of the state as there are rows."""
    makers = {
        one.node.name: one
        for one in functions_like(function)
        if one.node is not function.node and re.search(rf"\b({'|'.join(_MAKERS)})\(", one.text(one.node))
    }
    for statement in function.statements():
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            maker = makers.get(node.func.attr)
            if maker is None or ast.unparse(node.func.value) != function.node.args.args[0].arg:
                continue
            ends = [one.value for one in maker.statements() if isinstance(one, ast.Return)]
            cut = f"[:, :{given}.size(0)].contiguous()"
            text = function.text(node)
            many = f"tuple(part{cut} for part in {text})"
            return function.own(
                statement, (node, many if any(isinstance(one, ast.Tuple) for one in ends) else text + cut)
            )
    return None


def state_repair(
    names: list[str], call: Call | None, place: Place | None, evidence: Evidence
) -> Repair | None:
    """Write a call with its states turned, and forward with them turned back; or forward's own line.

    Args:
        names: the arguments that are states; none where forward makes its own.
        call: the call as it is.
        place: where forward refused its state.
        evidence: what the check saw.

    """
    if call is None:
        return None
    if not names:
        given = call.argument_structures[0][0]
        own = _own_state(place, given)
        example = f"torch.zeros(layers, {given}.size(0), hidden)"
        return own or Repair(None, "torch.zeros(layers, rows, hidden)", example)
    turned = [Given(name, "{}" + _TURN, "{}" + _BACK) for name in names if top_name(name) == name]
    if not turned:  # a tuple of them, such as an LSTM's, or a dict
        turned = [_all_turned(top_name(names[0]), names, call)]
    given_back = _given_back(call, evidence)
    own = handed_over(turned, call, evidence)
    inside = _together(own.also, given_back.changes) if own and given_back else ()
    if own and own.also and given_back and inside:
        first, *rest = inside
        around = around_call(call, given_back.names, then=given_back.then)
        lines = around.after.replace(call_of(call), own.after, 1)
        return Repair(first.place, first.before, first.after, (*rest, replace(around, after=lines)))
    written = call_of(call, **{one.path: one.there.replace("{}", one.path) for one in turned})
    return own or Repair(
        None, call_of(call), f"{written}   # and back in forward: .transpose(0, 1).contiguous()"
    )


def _together(given: tuple[Change, ...], back: tuple[Change, ...]) -> tuple[Change, ...]:
    """Join changes of forward's beginning with those of its end, which may be one line; () if they clash."""
    ends = {one.place: one for one in back}
    joined = []
    for one in given:
        end = ends.pop(one.place, None)
        if end is not None and one.after.count(end.before) != 1:
            return ()
        joined.append(replace(one, after=one.after.replace(end.before, end.after)) if end else one)
    return (*joined, *ends.values())


def _all_turned(name: str, states: list[str], call: Call) -> Given:
    """Write an argument that holds states with each of them turned, and turned back."""
    inside = [leaf.path for leaf in call.tensor_arguments if top_name(leaf.path) == name]
    others = [path for path in inside if path not in states]
    fields = [path.removeprefix(f"{name}.") for path in states]
    if all(map(str.isidentifier, fields)):  # a named tuple
        return Given(name, *(_replaced("{}", fields, back) for back in (_TURN, _BACK)))
    steps = re.findall(r"\[(.*?)\]", states[0].removeprefix(name))
    if others:  # a dict that holds more than states
        keys = [path.removeprefix(name) for path in states]
        written = [", ".join(f"{key[1:-1]}: {{}}{key}{back}" for key in keys) for back in (_TURN, _BACK)]
        return Given(name, *(f"{{**{{}}, {one}}}" for one in written))
    return Given(name, *(_each("{}", steps, back) for back in (_TURN, _BACK)))


def _replaced(value: str, fields: list[str], back: str) -> str:
    """Write a named tuple with a method called on some of its fields."""
    return f"{value}._replace({', '.join(f'{one}={value}.{one}{back}' for one in fields)})"


_PARTS = ("part", "inner", "innermost")


def _each(value: str, steps: list[str], back: str, depth: int = 0) -> str:
    """Write what stands at these steps, keys or indices, with a method called on each that is alike."""
    if not steps:
        return f"{value}{back}"
    part = _PARTS[min(depth, len(_PARTS) - 1)]
    written = _each(part, steps[1:], back, depth + 1)
    if steps[0].isdigit():
        return f"tuple({written} for {part} in {value})"
    return f"{{key: {written} for key, {part} in {value}.items()}}"


_TURN = ".transpose(0, 1)"
_BACK = ".transpose(0, 1).contiguous()"


def _given_back(call: Call, evidence: Evidence) -> Turned | None:
    """Write forward with the states of its result turned, which gather joins on dimension 0 otherwise."""
    probe = next((one for one, its in evidence.calls if its is call), None)
    alone = {leaf.path: leaf.shape for leaf in probe.single.output} if probe else {}
    states = [
        path
        for path, shape in alone.items()
        if shape is not None and len(shape) == _STATE_DIMS
        if is_batch(shape, 1, call.rows) and not is_batch(shape, 0, call.rows)
    ]
    subjects = [pair_of_states(path, alone, 1, call.rows) for path in states]
    return turned_results(result_place(evidence, call), subjects, alone, _TURN) if subjects else None
