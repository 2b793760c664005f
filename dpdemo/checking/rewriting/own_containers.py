"""A container or an object that all replicas share, made anew at the beginning of each call."""

import ast
import re
from collections.abc import Sequence

from dpdemo.checking.evidence import Evidence
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.handing import own_forward
from dpdemo.checking.source import Function, attribute_of, source_of, tree_of
from dpdemo.reports.check import Place


def is_by_gpu_in(path: str, forward: Place | None) -> bool:
    """Whether the model's file names a GPU in a key of what an attribute holds."""
    keys = rf"\b{path.rpartition('.')[2]}\b[^\n]*[\[(][^\n]*(\.device|get_device\(\))"
    return forward is not None and re.search(keys, source_of(forward.file)) is not None


def copied_at_each_call(paths: Sequence[str], evidence: Evidence) -> Repair | None:
    """Write the model's forward with a first line that copies for its parts what a call leaves empty."""
    forward = own_forward(evidence)
    if forward is None:
        return None
    names = (one for one in ast.walk(tree_of(forward.file)) if isinstance(one, ast.alias))
    needed = "" if any("copy" in (one.name, one.asname) for one in names) else "import copy\n"
    return _made_in(forward, paths, f"{needed}{{made}} = copy.deepcopy({{one}})")


def emptied_at_each_call(paths: Sequence[str], evidence: Evidence) -> Repair | None:
    """Write the model's forward with a first line that makes an empty container for its parts.

    Args:
        paths: by what names modules of the model hold it, all of them; its class needs no arguments.
        evidence: what the check saw.

    """
    return _made_in(own_forward(evidence), paths, "{made} = type({one})()")


def _made_in(forward: Function | None, paths: Sequence[str], line: str) -> Repair | None:
    if forward is None or not forward.node.args.args:
        return None
    targets = [attribute_of(path, forward.node.args.args[0].arg) for path in paths]
    edits = Edits(forward.file)
    made = line.format(made=" = ".join(targets), one=targets[0])
    edits.first_in(forward, f"{made}   # one for each call")
    return repair_of(edits.changes())
