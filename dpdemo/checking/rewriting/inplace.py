"""Numbers of a parameter or buffer that do not depend on the batch, written in place: replica 0 shares them.

So PyTorch's own spectral norm does it (torch/nn/utils/spectral_norm.py): what `x.data = ...` gives a replica
is thrown away with it, and what is written into the tensor that it holds is there for the next call.
"""

import ast

from dpdemo.checking.evidence import Call, Evidence, StateChange
from dpdemo.checking.methods import methods_in
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.forwards import Forward, read_method, stored
from dpdemo.checking.rewriting.taking import locals_in
from dpdemo.checking.source import Function, attribute_of


def written_in_place(change: StateChange, evidence: Evidence) -> Repair | None:
    """Write `x.data = value` of a method that is given nothing as `x.data.copy_(value)`.

    The method is one of a module around the parameter; None where no such method assigns to `data`.
    """
    kinds = dict(evidence.scan.module_types)
    files = {name.rpartition(".")[2]: file for name, file in evidence.scan.classes if file}
    steps = change.path.split(".")
    for length in range(len(steps) - 1, -1, -1):
        kind = kinds.get(".".join(steps[:length]), "")
        if kind not in files:
            continue
        edits = Edits(files[kind])
        for method in methods_in(files[kind], kind, 0).values():
            for statement in _assignments(method):
                target = method.text(statement.targets[0])
                edits.replace(statement, f"{target}.copy_({method.text(statement.value)})")
        if changes := edits.changes():
            return repair_of(changes)
    return None


def _assignments(method: Function) -> list[ast.Assign]:
    """List the statements that assign to the `data` of a name, in a method without arguments."""
    given = method.node.args
    if len(given.args) != 1 or given.vararg or given.kwonlyargs or method.node.name == "__init__":
        return []
    return [
        one
        for one in method.statements()
        if isinstance(one, ast.Assign)
        and len(one.targets) == 1
        and isinstance(one.targets[0], ast.Attribute)
        and one.targets[0].attr == "data"
    ]


def buffer_in_place(change: StateChange, evidence: Evidence, call: Call | None) -> Repair | None:
    """Write `self.u = value`, where forward makes the value of the model alone, as `self.u.copy_(value)`."""
    kinds = dict(evidence.scan.module_types)
    files = {name.rpartition(".")[2]: file for name, file in evidence.scan.classes if file}
    kind = kinds.get(change.owner, "")
    method = methods_in(files[kind], kind, 0).get("forward") if kind in files else None
    forward = read_method(evidence, call, method, change.owner)
    if forward is None:
        return None
    target = attribute_of(change.path.rpartition(".")[2], forward.me)
    found = [
        one
        for one in forward.function.statements()
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == target
    ]
    if len(found) != 1 or not _is_of_the_model(forward, found[0], ()):
        return None
    return forward.function.whole(found[0], f"{target}.copy_(({forward.text(found[0].value)}).detach())")


def _is_of_the_model(forward: Forward, statement: ast.stmt, seen: tuple[ast.stmt, ...]) -> bool:
    """Whether a statement reads nothing but the model, and names that are made of it alone."""
    if statement in seen:
        return True
    if forward.runs_layer(statement) or not isinstance(statement, ast.Assign):
        return False
    lines = [one for one in forward.function.statements() if not isinstance(one, ast.With)]
    makers = [[one for one in lines if name in stored(one)] for name in locals_in(forward, statement)]
    own = (*seen, statement)
    return all(made and all(_is_of_the_model(forward, one, own) for one in made) for made in makers)
