"""Layers that normalise over the batch, written as ones that do so for each sample by itself."""

import ast
import math

from dpdemo.checking.evidence import Evidence
from dpdemo.checking.methods import parts_of_the_model
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.reports.check import Change

_NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")

_ALIKE = ("eps", "affine", "device", "dtype")
"""Keyword arguments that GroupNorm has too: `momentum` is of statistics that it does not keep."""


def groups_of(channels: int) -> int:
    """Choose how many groups GroupNorm makes of so many channels: a power of two, and fewer than they are."""
    return next(number for number in (32, 16, 8, 4, 2, 1) if channels % number == 0 and channels > number)


def with_group_norms(evidence: Evidence) -> Repair | None:
    """Write the user's lines that make BatchNorm layers with GroupNorm in their place.

    Where they hand the class over instead, or where no line of theirs makes one, a loop replaces the layers
    before the model is wrapped.
    """
    norms = sum(kind == "BatchNorm" for _, kind in evidence.scan.module_types)
    is_each_known = norms == len(evidence.scan.norms)  # not of a single channel
    groups = groups_of(math.gcd(*(one for _, _, one in evidence.scan.norms))) if is_each_known else 1
    changes: list[Change] = []
    for file, parts in parts_of_the_model(evidence):
        edits = Edits(file)
        nodes = [one for part in parts for one in ast.walk(part)]
        made = [one for one in nodes if isinstance(one, ast.Call) and _name(one.func) in _NORMS]
        called = {id(one.func) for one in made}
        is_handed_over = any(_name(one) in _NORMS and id(one) not in called for one in nodes)
        if is_handed_over or any(len(one.args) != 1 for one in made):
            return _replaced_before(evidence, groups)
        for one in made:
            package = ast.unparse(one.func).rpartition(".")[0] or "torch.nn"
            kept = [ast.unparse(word) for word in one.keywords if word.arg in _ALIKE]
            given = ", ".join([str(groups), edits.applied_to(one.args[0]), *kept])
            edits.replace(one, f"{package}.GroupNorm({given})")
        changes += edits.changes()
    return repair_of(tuple(changes)) or _replaced_before(evidence, groups)


_LOOP = """for name, layer in list(model.named_modules()):
    if isinstance(layer, ({kinds})):
        model.set_submodule(name, nn.GroupNorm({groups}, layer.num_features))
{wraps}"""


def _replaced_before(evidence: Evidence, groups: int) -> Repair | None:
    """Write a loop that replaces the BatchNorm layers of a model before it is wrapped."""
    kinds = sorted({kind for _, kind, _ in evidence.scan.norms} & {*_NORMS})
    if not kinds or any(not path for path, _, _ in evidence.scan.norms):
        return None
    wraps = "model = nn.DataParallel(model)"
    named = ", ".join(f"nn.{kind}" for kind in kinds)
    lines = _LOOP.format(kinds=named, groups=groups, wraps=wraps)
    return Repair(None, wraps, lines.replace(f"({named})", named) if len(kinds) == 1 else lines)


def _name(node: ast.AST) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""
