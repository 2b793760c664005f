"""Numbers of a parameter that do not depend on the batch, written in place: replica 0 shares the model's own.

So PyTorch's own spectral norm does it (torch/nn/utils/spectral_norm.py): what `x.data = ...` gives a replica
is thrown away with it, and what is written into the tensor that it holds is there for the next call.
"""

import ast

from dpdemo.checking.evidence import Evidence, StateChange
from dpdemo.checking.methods import methods_in
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import Function


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
