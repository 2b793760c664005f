"""State that forward changes, written where it lasts: on the model itself, after the call."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence, Probe, StateChange
from dpdemo.checking.forwards import (
    Forward,
    commented,
    forward_of,
    free_names,
    of_model,
    stored,
    with_numbers,
)
from dpdemo.checking.lines import Own, attribute_of, function_at, functions_like, tree_of
from dpdemo.checking.looking import call_of
from dpdemo.reports.check import Place


def change_outside(change: StateChange, evidence: Evidence, call: Call | None) -> Own | None:
    """Write the statement of forward that changes state as it is written after the call.

    Args:
        change: what is changed, and the statement that does so.
        evidence: what the check saw.
        call: a call, whose arguments the line outside has.

    Returns:
        Forward from that statement on, and the same with it in comments behind a `return` of what it reads;
        None where forward needs it, or it stands in another module's.

    """
    forward = forward_of(evidence, call)
    if forward is not None and change.kind == "parameter" and not change.written:
        return _any_after_call(forward, _writing_numbers(forward), is_guarded=False)
    if forward is None or not change.written:
        return None
    found = list(dict.fromkeys([*_writers(forward, change), *_assigning(forward, change)]))
    is_made = change.kind == "container" or change.before in ("None", "absent")
    if is_made and any(_is_read_behind(forward, one, change) for one in found):
        return None
    return _any_after_call(forward, found, is_guarded=change.kind != "parameter")


def line_outside(place: Place | None, evidence: Evidence, call: Call | None) -> Own | None:
    """Write forward's statement around a line as it is written after the call, if forward can do without."""
    forward = forward_of(evidence, call)
    if forward is None or place is None:
        return None
    found = [one for one in forward.body if one.lineno <= place.line <= (one.end_lineno or 0)]
    return _any_after_call(forward, found or _calling(forward, place.function), is_guarded=True)


_A_LOSS = r"(^|_)(loss|losses|aux|penalty|reg|kl|kld|balance)(_|$)"


def is_for_outside(change: StateChange, forward: Place | None) -> bool:
    """Whether forward leaves a loss on `self` that no forward reads: so the program adds it to its own."""
    name = change.path.rpartition(".")[2]
    is_number = re.fullmatch(r"-?[\d.]+(e[-+]\d+)?", change.single) is not None
    if forward is None or not is_number or not re.search(_A_LOSS, name):
        return False
    if re.search(r"\.item\(\)|\bfloat\(|\.detach\(", change.written) or not change.written:
        return False
    return not any(_reads(one, name, change.module_type) for one in ast.walk(tree_of(forward.file)))


def _reads(node: ast.AST, name: str, owner: str) -> bool:
    """Whether a class reads an attribute in forward: its own, or that of a module in it."""
    if not isinstance(node, ast.ClassDef):
        return False
    forwards = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "forward"]
    return any(
        isinstance(one, ast.Attribute)
        and one.attr == name
        and isinstance(one.ctx, ast.Load)
        and (node.name == owner or ast.unparse(one.value) != "self")
        for forward in forwards
        for one in ast.walk(forward)
    )


def reads_of(forward: Place | None, name: str) -> bool:
    """Whether forward reads an attribute of the model that it may have set in an earlier call."""
    function = function_at(forward)
    nodes = ast.walk(function.node) if function else ()
    return any(
        isinstance(one, ast.Attribute) and one.attr == name and isinstance(one.ctx, ast.Load) for one in nodes
    )


def _any_after_call(forward: Forward, found: list[ast.stmt], *, is_guarded: bool) -> Own | None:
    """Write what stands around the statements outside; or a lone one that reads the model only."""
    around = {_top_of(forward, one) for one in found}
    own = _after_call(forward, around.pop(), is_guarded=is_guarded) if len(around) == 1 else None
    if own is not None or len(found) != 1 or not isinstance(found[0], ast.Expr):
        return own
    if free_names(found, forward) or forward.runs_layer(found[0]):
        return None
    outside = of_model(forward.text(found[0]), forward.me)
    return forward.function.whole(found[0], f"pass   # outside, after the call: {outside}")


def _after_call(forward: Forward, statement: ast.stmt | None, *, is_guarded: bool) -> Own | None:
    if statement is None or statement is forward.body[-1]:
        return None
    at = forward.body.index(statement)
    *between, end = forward.body[at + 1 :]
    if forward.runs_layer(statement) or not isinstance(end, ast.Return) or end.value is None:
        return None
    if stored(statement) & set(free_names([*between, end], forward)):
        return None
    copied, needed = with_numbers(free_names([statement], forward), forward.body[:at], forward)
    if any(forward.is_state(name) for name in needed):
        return None  # it has the batch on another dimension
    text = of_model(forward.function.own(statement).after, forward.me)
    given, names = _returning(forward, end.value, needed)
    outside = "\n".join([f"{names} = {call_of(forward.call)}", *copied, text])
    is_guarded = is_guarded or re.search(r"no_grad|\.data\b", forward.text(statement)) is not None
    head = f"# outside, after the call{'' if is_guarded else ', under torch.no_grad()'}:"
    kept = [forward.function.own(one).after for one in between]
    after = "\n".join([*kept, f"return {given}", head, commented(outside)])
    return forward.function.rewritten(statement, end, after)


def _writers(forward: Forward, change: StateChange) -> list[ast.stmt]:
    """Find the statements of forward that change state, or call the method that does."""
    here = [one for one in forward.function.statements() if forward.text(one) == change.written]
    if here:
        return here
    for method in functions_like(forward.function):
        if any(method.text(one) == change.written for one in method.statements()):
            return _calling(forward, method.node.name)
    return []


def _writing_numbers(forward: Forward) -> list[ast.stmt]:
    """List forward's statements that write to a parameter's numbers by another name: a loop's, say."""
    lines = (one for one in forward.function.statements() if isinstance(one, ast.Expr))
    return [one for one in lines if re.search(r"\.data(\[.*\])?\.[a-z]\w*_\(", forward.text(one))]


def _calling(forward: Forward, method: str) -> list[ast.stmt]:
    """List forward's statements that are nothing but a call of one of its methods."""
    return [
        one
        for one in forward.function.statements()
        if isinstance(one, ast.Expr)
        and isinstance(one.value, ast.Call)
        and forward.text(one.value.func) == attribute_of(method, forward.me)
    ]


def _assigning(forward: Forward, change: StateChange) -> list[ast.stmt]:
    """List forward's statements that assign to the same attribute."""
    name = attribute_of(change.path, forward.me)
    return [
        one
        for one in forward.function.statements()
        if isinstance(one, ast.Assign) and any(ast.unparse(target) == name for target in one.targets)
    ]


def _is_read_behind(forward: Forward, statement: ast.stmt, change: StateChange) -> bool:
    """Whether forward reads what a statement writes, which is not there before it."""
    name = attribute_of(change.path, forward.me)
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and ast.unparse(node) == name
        and node.lineno > (statement.end_lineno or 0)
        for node in ast.walk(forward.function.node)
    )


def _top_of(forward: Forward, statement: ast.stmt) -> ast.stmt | None:
    """Find what stands in forward's body around a statement."""
    return next((one for one in forward.body if any(part is statement for part in ast.walk(one))), None)


def _returning(forward: Forward, value: ast.expr, needed: list[str]) -> tuple[str, str]:
    """Write what forward returns with more in it, and the names that it is given to outside."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    texts = [forward.text(one) for one in parts]
    more = [name for name in needed if name not in texts]
    taken = [
        text if text.isidentifier() else f"result_{index}" if len(texts) > 1 else "result"
        for index, text in enumerate(texts)
    ]
    return ", ".join([*texts, *more]), ", ".join([*taken, *more])


def changes_of(evidence: Evidence, *kinds: str) -> Iterator[tuple[Probe, StateChange]]:
    """List what forward changed of these kinds of state, in each probe that came to run it."""
    for probe in evidence.probes:
        if not _ran(probe):
            continue
        for change in probe.changes:
            if change.kind in kinds:
                yield probe, change


def _ran(probe: Probe) -> bool:
    """Return whether any replica came to run forward: a call that failed before says nothing about state."""
    call = probe.call
    return call is not None and any(replica.output is not None or replica.raised for replica in call.replicas)


def is_of_data(change: StateChange) -> bool:
    """Return whether forward gives the same parameter other numbers: `self.w.data = ...`."""
    is_lost = change.single_changed and not change.parallel_changed
    return is_lost and re.match(r"[\w.\[\]]+\.data\s*=", change.written) is not None


def statement_outside(change: StateChange) -> str:
    """Write the line that changes state as it is written after the call, outside of forward."""
    module = attribute_of(change.owner, "model.module") if change.owner else "model.module"
    return re.sub(r"\bself\b", module, change.written)
