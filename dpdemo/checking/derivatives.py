"""Training inside of forward, written for replicas: gradients that are asked for, and layers not copied."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import Function, attribute_of, function_at
from dpdemo.reports.check import Place

_FEW = 8
"""So many parameters can be written out."""


def asked_for(place: Place | None) -> Repair | None:
    """Write a `backward()` of which `.grad` is read afterwards as a call of `torch.autograd.grad`.

    Returns:
        The lines from the backward to the last one that reads a gradient; None where an optimizer reads them.

    """
    function = function_at(place)
    body, at = _around(function, place)
    if function is None or any(_calls(one, "step") for one in function.statements()):
        return None
    goes = _calls(body[at], "backward") if body else None
    if goes is None or goes.args or not isinstance(goes.func, ast.Attribute):
        return None
    reads = [(index, one) for index in range(at + 1, len(body)) for one in _gradients_in(body[index])]
    first = next((index for index, one in enumerate(body[:at]) if _calls(one, "zero_grad")), at)
    if not reads:
        return None
    owners = list(dict.fromkeys(function.text(one.value) for _, one in reads))
    names = ["gradient"] if len(owners) == 1 else [f"gradients[{index}]" for index in range(len(owners))]
    options = "".join(f", {function.text(one)}" for one in goes.keywords)
    target = "(gradient,)" if len(owners) == 1 else "gradients"
    loss = function.text(goes.func.value)
    lines, last = [], max(index for index, _ in reads)
    for index in range(first, last + 1):
        if index == at:
            lines.append(f"{target} = torch.autograd.grad({loss}, [{', '.join(owners)}]{options})")
        elif not _calls(body[index], "zero_grad"):
            parts = [
                (one, names[owners.index(function.text(one.value))]) for one in _gradients_in(body[index])
            ]
            lines.append(function.own(body[index], *parts).after)
    own = function.rewritten(body[first], body[last], "\n".join(lines))
    edits = Edits(function.file)
    for one in function.statements():
        if _calls(one, "zero_grad") and one not in body[first : last + 1]:
            edits.replace(one, "pass   # no gradients are kept that could be set to zero")
    return own._replace(also=edits.changes())


def _around(function: Function | None, place: Place | None) -> tuple[list[ast.stmt], int]:
    """Find the block that a line stands in, and which statement of it it is."""
    todo: list[list[ast.stmt]] = [function.node.body] if function else []
    for body in todo:
        for index, one in enumerate(body):
            if (
                place is not None
                and one.lineno == place.line
                and isinstance(one, (ast.Expr, ast.Assign, ast.Return))
            ):
                return body, index
            todo += [getattr(one, name) for name in ("body", "orelse") if getattr(one, name, [])]
    return [], 0


def _calls(statement: ast.stmt, name: str) -> ast.Call | None:
    """Return the method's call that a statement is, if it is one."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    is_it = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == name
    return value if is_it and isinstance(value, ast.Call) else None


def _gradients_in(statement: ast.stmt) -> Iterator[ast.Attribute]:
    for node in ast.walk(statement):
        is_read = isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Load)
        if is_read and isinstance(node, ast.Attribute) and not ast.unparse(node).endswith("autograd.grad"):
            yield node


def without_copy(place: Place | None, evidence: Evidence) -> Repair | None:
    """Write a `copy.deepcopy` of a parameter or a layer in forward as a replica can make it.

    Returns:
        A parameter's numbers; a layer called with its weights detached; or, where an optimizer trains the
        copy, the steps with the weights in a dict. None where the lines are others.

    """
    function = function_at(place)
    body, at = _around(function, place)
    copied = _copy_in(body[at]) if body else None
    if function is None or copied is None:
        return None
    statement = body[at]
    source = function.text(copied.args[0])
    if source in {attribute_of(name) for name in evidence.scan.parameters}:
        return function.own(statement, (copied, f"{source}.detach().clone()"))
    weights = _weights(source, evidence)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    run = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and node.func is copied]
    if run and weights is not None:
        given = ", ".join(map(function.text, run[0].args))
        once = f"torch.func.functional_call({source}, {weights}, ({given},))"
        return function.own(statement, (run[0], once))
    if weights is None or not isinstance(target, ast.Name):
        return None
    if any(f"{target.id}.parameters()" in function.text(one) for one in body[at + 1 :]):
        own = _trained(function, body[at:], target.id, source, weights)
        return own or _copied_as_leaves(function, copied, target.id, source, evidence)
    called = f"lambda *args: torch.func.functional_call({source}, {weights}, args)"
    is_other = function.text(statement).endswith(".eval()") and _differs_in_evaluation(source, evidence)
    return None if is_other else function.whole(statement, f"{target.id} = {called}")


def _copied_as_leaves(
    function: Function, copied: ast.Call, name: str, source: str, evidence: Evidence
) -> Repair | None:
    """Write the copy of a layer with leaves for its weights, and the list of them where it is asked for."""
    names = [one.removeprefix(f"{_path(source)}.") for one in _inside(source, evidence)]
    weights = ", ".join(attribute_of(one, source) for one in names)
    leaves = f"{{id(one): one.detach().clone().requires_grad_() for one in [{weights}]}}"
    own = ", ".join(attribute_of(one, name) for one in names)
    edits = Edits(function.file)
    edits.replace(copied, f"{function.text(copied.func)}({source}, {leaves})")
    asked = f"{name}.parameters()"
    calls = [node for node in ast.walk(function.node) if isinstance(node, ast.Call)]
    lists = [node for node in calls if ast.unparse(node) in (f"list({asked})", f"tuple({asked})")]
    inside = [one.args[0] for one in lists]
    for node in (one for one in calls if one in lists or ast.unparse(one) == asked):
        if node not in inside:
            edits.replace(node, f"[{own}]")
    return repair_of(edits.changes())


def _copy_in(statement: ast.stmt) -> ast.Call | None:
    """Find the call of `copy.deepcopy` in a statement."""
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call) and node.args)
    return next((one for one in calls if ast.unparse(one.func).endswith("deepcopy")), None)


def _path(source: str) -> str:
    return re.sub(r"\[(\d+)\]", r".\1", source).partition(".")[2]


def _weights(source: str, evidence: Evidence) -> str | None:
    """Write a dict of a layer's parameters by name, detached; None where they are too many."""
    inside = _inside(source, evidence)
    if not 0 < len(inside) <= _FEW:
        return None
    names = {name.removeprefix(f"{_path(source)}."): f"{attribute_of(name)}.detach()" for name in inside}
    return "{" + ", ".join(f'"{name}": {code}' for name, code in names.items()) + "}"


def _inside(source: str, evidence: Evidence) -> list[str]:
    """List the parameters of a layer, as the model names them."""
    return [name for name in evidence.scan.parameters if name.startswith(f"{_path(source)}.")]


def _differs_in_evaluation(source: str, evidence: Evidence) -> bool:
    path = _path(source)
    kinds = [kind for name, kind in evidence.scan.module_types if f"{name}.".startswith(f"{path}.")]
    return any(re.search(r"Dropout|BatchNorm|RNN|Transformer|Attention", kind) for kind in kinds)


def _trained(function: Function, body: list[ast.stmt], name: str, source: str, weights: str) -> Repair | None:
    """Write the steps of plain SGD on a copy with the copy's weights in a dict."""
    made = [one for one in body if f"{name}.parameters()" in function.text(one)]
    found = re.fullmatch(
        rf"(\w+) = (?:torch\.)?(?:optim\.)?SGD\({name}\.parameters\(\), (?:lr=)?([\w.]+)\)",
        function.text(made[0]),
    )
    goes = [
        function.text(call.func.value)
        for statement in function.statements()
        if (call := _calls(statement, "backward")) is not None and isinstance(call.func, ast.Attribute)
    ]
    if len(made) != 1 or found is None or len(goes) != 1:
        return None
    step = (
        f"{name} = {{key: weight - {found[2]} * gradient for (key, weight), gradient in "
        f"zip({name}.items(), gradients)}}"
    )
    new = {
        f"{found[1]}.zero_grad()": "pass",
        f"{goes[0]}.backward()": f"gradients = torch.autograd.grad({goes[0]}, list({name}.values()))",
        f"{found[1]}.step()": step,
    }
    lines = [f"{name} = {{key: weight.requires_grad_() for key, weight in {weights}.items()}}"]
    for statement in body[1:]:
        if statement is made[0]:
            continue
        parts: list[tuple[ast.AST, str]] = []
        for node in ast.walk(statement):
            if isinstance(node, ast.Expr) and function.text(node) in new:
                parts.append((node, new[function.text(node)]))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                given = ", ".join(map(function.text, node.args))
                parts.append((node, f"torch.func.functional_call({source}, {name}, ({given},))"))
        lines.append(function.own(statement, *parts).after)
    return function.rewritten(body[0], body[-1], "\n".join(lines))
