"""Objects that hold tensors, opened for scatter at the call, and made again in forward."""

import ast
import re
import sys

from dpdemo.checking.evidence import Call, Evidence, Leaf
from dpdemo.checking.looking import call_of, call_with, top_name
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.handing import Given, handed_over, own_forward
from dpdemo.checking.source import Function, tree_of


def opened(leaf: Leaf, call: Call, evidence: Evidence) -> Repair:
    """Write a call that is given a dict of what an object holds, and forward that makes the object of it.

    A mapping is given as a dict, which is read like it; an object of any other class is made anew, without
    its `__init__`, which may want something else.
    """
    function = own_forward(evidence)
    if leaf.is_mapping:
        return _mapping(leaf, call, evidence, function)
    names = [re.split(r"[ .\[]", inside, maxsplit=1)[0] for inside in leaf.tensors_inside]
    inside = ", ".join(f"'{name}': {leaf.path}.{name}" for name in dict.fromkeys(names))
    told = f"{call_with(call, leaf.path, f'{{{inside}}}')}   # and forward reads {leaf.path}['{names[0]}']"
    plain = Repair(None, call_of(call), told)
    name = leaf.path
    if function is None or name != top_name(name) or name not in function.arguments():
        return plain
    lists = [one for one, length in leaf.numbers_inside if length in (call.planned, call.rows)]
    tensors = "".join(f", '{one}': torch.tensor({name}.{one})" for one in lists)
    after = call_of(call, **{name: f"{{**vars({name}){tensors}}}" if lists else f"vars({name})"})
    if leaf.home:
        edits = Edits(function.file)
        lines = [f"{name}, given = {leaf.type}.__new__({leaf.type}), {name}", f"vars({name}).update(given)"]
        lines += [f"{name}.{one} = {name}.{one}.tolist()" for one in lists]
        edits.first_in(function, "\n".join([*_import_of(leaf, function), *lines]))
        return Repair(None, call_of(call), after, edits.changes())
    reads = _reads(name, function)
    if reads is None:
        return plain
    edits = Edits(function.file)
    for node in reads:
        edits.replace(node, f'{name}["{node.attr}"]')
    return Repair(None, call_of(call), after, edits.changes())


def _mapping(leaf: Leaf, call: Call, evidence: Evidence, function: Function | None) -> Repair:
    plain = Repair(None, call_of(call), call_with(call, leaf.path, f"dict({leaf.path})"))
    if function is None or not leaf.home or leaf.path != top_name(leaf.path):
        return plain
    by_key = {"items", "keys", "values", "get", "pop", "update", "copy"}
    attributes = {
        node.attr
        for node in ast.walk(function.node)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == leaf.path
    }
    if attributes <= by_key:
        return plain
    needed = "\n".join(_import_of(leaf, function))
    given = Given(leaf.path, "dict({})", f"{leaf.type}({{}})")
    return handed_over([given], call, evidence, needed=needed) or plain


def _import_of(leaf: Leaf, function: Function) -> list[str]:
    """Write the line by which forward knows a class, where its file does not."""
    here = tree_of(function.file).body
    defined = any(isinstance(one, ast.ClassDef) and one.name == leaf.type for one in here)
    imported = any(
        (part.asname or part.name) == leaf.type
        for one in here
        if isinstance(one, ast.ImportFrom)
        for part in one.names
    )
    own = getattr(sys.modules.get(leaf.home), "__file__", None) == function.file
    return [] if defined or imported or own else [f"from {leaf.home} import {leaf.type}"]


def _reads(name: str, function: Function) -> list[ast.Attribute] | None:
    """List forward's reads of an object's attributes; None where it does anything else with the object."""
    found = [
        node
        for node in ast.walk(function.node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
    ]
    known = {id(node.value) for node in found}
    others = [
        node
        for node in ast.walk(function.node)
        if isinstance(node, ast.Name) and node.id == name and id(node) not in known
    ]
    called = {id(node.func) for node in ast.walk(function.node) if isinstance(node, ast.Call)}
    return None if others or any(id(node) in called for node in found) else found
