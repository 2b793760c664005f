"""A container or an object that all replicas share, made anew at the beginning of each call."""

import ast
import re
from collections.abc import Sequence

from dpdemo.checking.evidence import Evidence, StateChange
from dpdemo.checking.methods import functions_like, methods_in
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.handing import own_forward
from dpdemo.checking.source import Function, attribute_of, function_at, source_of, tree_of
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


def made_where_reset(paths: Sequence[str], change: StateChange, evidence: Evidence) -> Repair | None:
    """Write the line that empties an object on `self` at the beginning of a call, and one that makes another.

    None where its class needs arguments, or the method that is called does more than to empty it.
    """
    home, kind = function_at(change.place), re.match(r"an? (\w+) \(", change.single)
    if home is None or kind is None:
        return None
    methods = methods_in(home.file, kind[1], 0)
    name = change.path.rpartition(".")[2]
    resets = (
        [one for one in methods if _empties(methods[one])] if _needs_nothing(methods.get("__init__")) else []
    )
    for function in (one for one in functions_like(home) if one.node.args.args):
        here = attribute_of(name, function.node.args.args[0].arg)
        for one in function.statements():
            if ast.unparse(one) in {f"{here}.{reset}()" for reset in resets}:
                if len(paths) > 1:
                    return emptied_at_each_call(paths, evidence)
                return function.whole(one, f"{here} = type({here})()   # one for each call")
    return None


def _needs_nothing(init: Function | None) -> bool:
    """Whether a class is made without arguments."""
    given = init.node.args if init is not None else None
    return given is None or not (given.args[1:] or given.kwonlyargs or given.vararg or given.kwarg)


def _empties(method: Function) -> bool:
    """Whether a method does nothing but give attributes empty containers, numbers or None, or clear them."""
    return all(
        re.fullmatch(
            r"self\.\w+(\.clear\(\)| = (\[\]|\{\}|set\(\)|\w+\(list\)|None|-?[\d.]+|True|False))",
            ast.unparse(one),
        )
        for one in method.statements()
        if not isinstance(one, ast.Expr) or not isinstance(one.value, ast.Constant)
    )


def _made_in(forward: Function | None, paths: Sequence[str], line: str) -> Repair | None:
    if forward is None or not forward.node.args.args:
        return None
    targets = [attribute_of(path, forward.node.args.args[0].arg) for path in paths]
    edits = Edits(forward.file)
    made = line.format(made=" = ".join(targets), one=targets[0])
    edits.first_in(forward, f"{made}   # one for each call")
    return repair_of(edits.changes())
