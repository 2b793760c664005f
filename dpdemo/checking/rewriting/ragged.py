"""Lists of tensors of different shapes, handed over so that each replica gets those of its own samples."""

import ast
from collections.abc import Sequence

from dpdemo.checking.evidence import Call, Evidence
from dpdemo.checking.looking import call_by_keyword, call_of
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.handing import ROWS, Given, own_forward, with_another

_FLAT = "torch.nn.utils.rnn.pad_sequence([one.flatten() for one in {}], batch_first=True)"
_OWN_SHAPES = "[one[: torch.Size(shape).numel()].view(shape) for one, shape in zip({}, shapes.tolist())]"


def padded(path: str, call: Call, evidence: Evidence) -> Repair | None:
    """Hand over tensors of different shapes as rows of one, and their shapes, for forward to undo."""
    names = ("shapes", "own_shapes", "shapes_of_the_rows")
    shapes = "torch.tensor([one.shape for one in {}])"
    return with_another(Given(path, _FLAT, _OWN_SHAPES), names, shapes, call, evidence)


_OWN_TENSORS = "[NAME()[row].to(ROWS.device) for row in ROWS.tolist()]"
_OWN_DICTS = "[{key: one.to(ROWS.device) for key, one in NAME()[row].items()} for row in ROWS.tolist()]"
"""scatter does not open a function: each replica calls it, and takes the rows that are its own."""


def called_for(pictures: str, targets: Sequence[str], call: Call, evidence: Evidence) -> Repair | None:
    """Hand over lists as functions that give them, with the numbers of the rows, for forward to take its own.

    Args:
        pictures: an argument that is a list of tensors.
        targets: those that are lists of dicts of tensors, as long.
        call: the call as it is.
        evidence: what the check saw.

    """
    function = own_forward(evidence)
    names = [pictures, *targets]
    if function is None or not set(names) <= function.arguments() or function.node.args.vararg is not None:
        return None
    used = {node.id for node in ast.walk(function.node) if isinstance(node, ast.Name)}
    rows = next((one for one in ROWS if one not in used | function.arguments()), "its_rows")
    edits, lines = Edits(function.file), []
    for name in names:
        taken = (_OWN_TENSORS if name == pictures else _OWN_DICTS).replace("ROWS", rows).replace("NAME", name)
        lines.append(f"{name} = {name} if {rows} is None else {taken}")
    edits.parameter(function, f"{rows}=None")
    edits.first_in(function, "\n".join(lines))
    given = {name: f"lambda: {name}" for name in names}
    after = call_by_keyword(call, **given, **{rows: f"torch.arange(len({pictures}))"})
    return Repair(None, call_of(call), after, edits.changes())
