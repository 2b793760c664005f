"""Embeddings that shorten their rows in forward (`max_norm`), which do so before the call instead."""

import ast

from dpdemo.checking.evidence import Call, Evidence
from dpdemo.checking.methods import parts_of_the_model
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.calling import around_call
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import attribute_of
from dpdemo.reports.check import Change


def shortened_before(evidence: Evidence, call: Call | None) -> Repair | None:
    """Write the lines that make such embeddings without `max_norm`, and the call with rows shortened before.

    What one GPU looks up is the same: rows that no sample asks for are shortened earlier. None where the
    embeddings have not one norm, or are made where no line says so.
    """
    limits = {(limit, kind) for _, limit, kind in evidence.scan.shortened}
    if call is None or len(limits) != 1:
        return None
    changes: list[Change] = []
    for file, parts in parts_of_the_model(evidence):
        edits = Edits(file)
        for node in (one for part in parts for one in ast.walk(part)):
            for given in node.keywords if isinstance(node, ast.Call) else ():
                if given.arg == "max_norm" and isinstance(node, ast.Call):
                    edits.replace(node, _without(node))
        changes += edits.changes()
    ((limit, kind),) = limits
    tables = [attribute_of(path, "model.module") for path, _, _ in evidence.scan.shortened]
    weights = ", ".join(f"{one}.weight" for one in tables) + "," * (len(tables) == 1)
    lines = [
        "with torch.no_grad():",
        f"    for weight in ({weights}):",
        f"        weight.copy_(torch.renorm(weight, {kind}, 0, {limit}))",
    ]
    return repair_of((*changes, around_call(call, "result", first=lines))) if changes else None


def _without(node: ast.Call) -> str:
    """Write a call without its `max_norm`."""
    kept = [ast.unparse(one) for one in node.args]
    kept += [ast.unparse(one) for one in node.keywords if one.arg not in ("max_norm", "norm_type")]
    return f"{ast.unparse(node.func)}({', '.join(kept)})"
