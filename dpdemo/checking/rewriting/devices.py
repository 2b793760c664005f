"""How a line that names a GPU is written with the replica's own."""

import ast
import re

from dpdemo.checking.evidence import Event, Evidence
from dpdemo.checking.looking import device_at, parameters_at
from dpdemo.checking.repair import Repair
from dpdemo.checking.source import Function, class_at, function_at

_NAMES_A_GPU = re.compile(r"['\"]cuda|torch\.device\(|\bcuda\b|dev(ice)?s?\b", re.IGNORECASE)
"""The code of what may be given to `.to`, and is no type or tensor."""


def device_repair(event: Event, evidence: Evidence) -> Repair | None:
    """Write the statement that moved a tensor, or made one, with the replica's own GPU.

    That is the device of a tensor that the function has, or of the module's parameters, or else the GPU of
    the replica's thread, which PyTorch sets.
    """
    place = event.place
    function = function_at(place)
    around = [
        one
        for one in (function.statements() if function else ())
        if place and one.lineno <= place.line <= (one.end_lineno or 0)
    ]
    if function is None or not around:
        return None
    own = f"{event.own}.device" if event.own else ""
    if not own and class_at(place) and parameters_at(place, evidence):
        own = device_at(place, evidence)
    parts = _named(function, around[-1], own or "torch.cuda.current_device()")
    return function.own(around[-1], *parts) if parts else None


def _named(function: Function, statement: ast.stmt, device: str) -> list[tuple[ast.AST, str]]:
    """List the parts of a statement that name a device, each with another one in its place."""
    found: list[tuple[ast.AST, str]] = []
    perhaps: list[tuple[ast.AST, str]] = []
    for node in ast.walk(statement):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr="cuda")):
                found.append((node, f"{function.text(value)}.to({device})"))
            case ast.Call(func=ast.Attribute(attr="to"), args=[given, *_]):
                (found if _names_a_gpu(given) else perhaps).append((given, device))
        if isinstance(node, ast.Call):
            found += [(one.value, device) for one in node.keywords if one.arg == "device"]
    return found or perhaps[:1] * (len(perhaps) == 1)


def _names_a_gpu(given: ast.expr) -> bool:
    """Whether what is given to `.to` is a device, by how it is written: no type, and no tensor."""
    text = ast.unparse(given)
    if isinstance(given, ast.Attribute) and text.startswith("self.") and not text.endswith("type"):
        return True
    return _NAMES_A_GPU.search(text) is not None
