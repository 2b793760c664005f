"""Layers that normalise over the batch, written as ones that do so for each sample by itself."""

import ast
import math

from dpdemo.checking.evidence import Evidence
from dpdemo.checking.methods import parts_of_the_model
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.reports.check import Change

_NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")


def groups_of(channels: int) -> int:
    """Choose how many groups GroupNorm makes of so many channels: a power of two, and fewer than they are."""
    return next(number for number in (32, 16, 8, 4, 2, 1) if channels % number == 0 and channels > number)


def with_group_norms(evidence: Evidence) -> Repair | None:
    """Write the user's lines that make BatchNorm layers with GroupNorm in their place.

    None where they hand the class over instead, or where no line of theirs makes one.
    """
    groups = groups_of(math.gcd(*(channels for _, _, channels in evidence.scan.norms)) or 2)
    changes: list[Change] = []
    for file, parts in parts_of_the_model(evidence):
        edits = Edits(file)
        nodes = [one for part in parts for one in ast.walk(part)]
        made = [one for one in nodes if isinstance(one, ast.Call) and _name(one.func) in _NORMS]
        called = {id(one.func) for one in made}
        if any(_name(one) in _NORMS and id(one) not in called for one in nodes):
            return None
        for one in made:
            if len(one.args) != 1:
                return None
            package = ast.unparse(one.func).rpartition(".")[0] or "torch.nn"
            edits.replace(one, f"{package}.GroupNorm({groups}, {edits.applied_to(one.args[0])})")
        changes += edits.changes()
    return repair_of(tuple(changes))


def _name(node: ast.AST) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""
