"""A container or an object that all replicas share, made anew at the beginning of each call."""

import re
from collections.abc import Sequence

from dpdemo.checking.evidence import Evidence
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.handing import own_forward
from dpdemo.checking.source import attribute_of, source_of
from dpdemo.reports.check import Place


def is_by_gpu_in(path: str, forward: Place | None) -> bool:
    """Whether the model's file names a GPU in a key of what an attribute holds."""
    keys = rf"\b{path.rpartition('.')[2]}\b[^\n]*[\[(][^\n]*(\.device|get_device\(\))"
    return forward is not None and re.search(keys, source_of(forward.file)) is not None


def made_at_each_call(paths: Sequence[str], evidence: Evidence) -> Repair | None:
    """Write the model's forward with a first line that gives its parts one of their own.

    Args:
        paths: by what names modules of the model hold it, all of them.
        evidence: what the check saw.

    """
    forward = own_forward(evidence)
    if forward is None or not forward.node.args.args:
        return None
    me = forward.node.args.args[0].arg
    targets = [attribute_of(path, me) for path in paths]
    edits = Edits(forward.file)
    edits.first_in(forward, f"{' = '.join(targets)} = type({targets[0]})()   # one for each call")
    return repair_of(edits.changes())
