"""Lines that reach for what is in a wrapper: by its `module`, or through a call that is split."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence
from dpdemo.checking.looking import forward_place
from dpdemo.checking.methods import functions_like, method_of
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import Function, function_at
from dpdemo.reports.check import Place

_OWN = ("module", "device_ids", "output_device", "dim", "training", "src_device_obj")
"""What a DataParallel has itself, beside the methods that every module has."""
_OF_ANY_MODULE = (
    r"(named_)?(parameters|buffers|modules|children)|train|eval|to|cuda|cpu|float|half|double|bfloat16|"
    r"state_dict|load_state_dict|zero_grad|requires_grad_|apply|forward|(register|add)_\w+|get_\w+|_\w+"
)


def by_module(place: Place | None, name: str) -> Repair | None:
    """Write what a function looks up on the wrapper as looked up on its module, from a line on.

    What stands before that line ran: there the name may be that of the model itself.
    """
    if place is None:
        return None
    code, function = place.code, function_at(place)
    found = (node for node in ast.walk(function.node) if isinstance(node, ast.Attribute)) if function else ()
    behind = [node for node in found if node.lineno >= place.line]
    owners = [ast.unparse(node.value) for node in behind if node.attr == name and node.lineno == place.line]
    if function is None or not owners:
        after = re.sub(rf"(?<!\.module)\.{name}\b", f".module.{name}", code)
        return Repair(place, code, after) if after != code else None
    edits = Edits(function.file)
    for node in behind:
        is_own = node.attr in _OWN or re.fullmatch(_OF_ANY_MODULE, node.attr)
        if ast.unparse(node.value) == owners[0] and not is_own:
            edits.replace(node.value, f"{function.text(node.value)}.module")
    return repair_of(edits.changes())


def called_through(path: str, evidence: Evidence) -> Repair | None:
    """Write the lines that call what is in a wrapper, or a method of it, and ones that call the wrapper.

    Args:
        path: where the model holds the wrapper.
        evidence: what the check saw.

    Returns:
        None where nothing is seen to call it so.

    """
    owner = dict(evidence.scan.module_types).get(f"{path}.module", "")
    calls = list(_calls_past(path, owner, evidence))
    if not calls:
        return None
    file = calls[0][0].file
    edits, told = Edits(file), ""
    for function, node, wrapper, mode in calls:
        names = _names_of(owner, file) if mode else []
        keys = [f"{name}=" for name in names] + [""] * max(0, len(node.args) - len(names))
        given = [f"{key}{function.text(one)}" for key, one in zip(keys, node.args, strict=False)]
        given += [function.text(one) for one in node.keywords]
        given += [f'mode="{mode}"'] if mode else []  # beside positions it would be DP203
        edits.replace(node, f"{wrapper}({', '.join(given)})")
    for mode in sorted({mode for _, _, _, mode in calls if mode}):
        told = told or _with_mode(mode, owner, edits)
    line, changes = calls[0][1].lineno, edits.changes()
    first = next(one for one in changes if one.place and 0 <= line - one.place.line <= one.before.count("\n"))
    others = tuple(one for one in changes if one is not first)
    return Repair(first.place, first.before, f"{first.after}{told}", others)


def _calls_past(path: str, owner: str, evidence: Evidence) -> Iterator[tuple[Function, ast.Call, str, str]]:
    """List the calls of a wrapper's module, or of a method of its class, with the wrapper and the method."""
    home = function_at(forward_place(evidence))
    for function in {id(one.node): one for one in (home, *functions_like(home))}.values() if home else ():
        for node in ast.walk(function.node):
            text = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            found = re.fullmatch(rf"(.*\.{re.escape(path)})(\.module)?(?:\.(\w+))?", text)
            if found is None or not isinstance(node, ast.Call):
                continue
            mode = "" if found[3] in (None, "forward") else found[3]
            if found[2] or (mode and method_of(owner, mode, function.file) is not None):
                yield function, node, found[1], mode


def _names_of(owner: str, file: str) -> list[str]:
    """Name the arguments of what is wrapped."""
    forward = method_of(owner, "forward", file)
    return [one.arg for one in forward.node.args.args[1:]] if forward else []


def _with_mode(mode: str, owner: str, edits: Edits) -> str:
    """Have the forward of what is wrapped go to another method; or else tell so in a comment."""
    told = f"   # where forward(..., mode) goes to {mode}"
    forward, method = method_of(owner, "forward", edits.file), method_of(owner, mode, edits.file)
    if forward is None or method is None or method.node.args.vararg or method.node.args.kwarg:
        return told
    if "mode" in forward.arguments():
        return "" if re.search(rf"[\"']{mode}[\"']", forward.text(forward.node)) else told
    names = [one.arg for one in method.node.args.args[1:]]
    if not set(names) <= forward.arguments():
        return told
    edits.parameter(forward, 'mode=""')
    me = forward.node.args.args[0].arg
    edits.first_in(forward, f'if mode == "{mode}":\n    return {me}.{mode}({", ".join(names)})')
    return ""
