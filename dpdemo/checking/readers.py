"""Who reads, after a call, what forward has left on `self`: replicas take it away with them."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence, StateChange
from dpdemo.checking.methods import classes_of
from dpdemo.checking.source import FUNCTIONS, tree_of
from dpdemo.models.frames import is_installed
from dpdemo.reports.check import Place

_A_LOSS = r"(^|_)(loss|losses|aux|penalty|reg|kl|kld|balance)(_|$)"
_FOR_PEOPLE = re.compile(r"__\w+__|extra_repr|reset\w*|clear\w*")
"""Methods that show or forget what there is: nothing is wrong with their results."""


def is_for_outside(change: StateChange, forward: Place | None) -> bool:
    """Whether forward leaves a loss on `self` that no forward reads: so the program adds it to its own."""
    name = change.path.rpartition(".")[2]
    is_number = re.fullmatch(r"-?[\d.]+(e[-+]\d+)?", change.single) is not None
    if forward is None or not is_number or not re.search(_A_LOSS, name):
        return False
    if re.search(r"\.item\(\)|\bfloat\(|\.detach\(", change.written) or not change.written:
        return False
    return not any(_forward_reads(one, name, change.module_type) for one in ast.walk(tree_of(forward.file)))


def reader_outside(change: StateChange, evidence: Evidence) -> str:
    """Name a method of the model, or a function beside it, that reads an attribute outside of forward."""
    forward = evidence.scan.forward
    if forward is None or is_installed(forward.file):
        return ""
    tree, name = tree_of(forward.file), change.path.rpartition(".")[2]
    reached = _reached(tree)
    kinds = {evidence.scan.model, *(kind for _, kind in evidence.scan.module_types)}
    owners = {"", *(base for kind in kinds for base in _family(forward, kind))}
    family = _family(forward, change.module_type)
    for owner, function in _functions(tree):
        if owner not in owners or function.name in reached or _FOR_PEOPLE.fullmatch(function.name):
            continue
        is_own, parts = owner in family, _parts_in(function)
        if any(_reads(one, name, is_own=is_own, parts=parts) for one in _inside(function)):
            return function.name
    return ""


def _family(forward: Place, kind: str) -> set[str]:
    """Name a class and those of the model's file that it inherits from."""
    return {kind, *(one.name for one in classes_of(forward.file, kind, forward.line))}


def is_read_by_none(change: StateChange, evidence: Evidence, rows: int) -> bool:
    """Whether forward leaves rows of the batch on `self`, by a public name, that nothing in its file reads.

    Then it is for the program, which finds none of it. What is read is scratch space, and what has no rows
    may be for people.
    """
    forward, name = evidence.scan.forward, change.path.rpartition(".")[2]
    shape = re.match(r"a tensor of shape \((\d+),", change.single)
    if forward is None or is_installed(forward.file) or shape is None or int(shape[1]) != rows:
        return False
    tree = tree_of(forward.file)
    read = {one.attr for one in ast.walk(tree) if isinstance(one, ast.Attribute) and _is_loaded(one)}
    texts = {str(one.value) for one in ast.walk(tree) if isinstance(one, ast.Constant)}
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    run = {id(one.func) for one in calls}  # getattr(self, name)(x) runs a layer
    asked = {ast.unparse(one.func) for one in calls if id(one) not in run}
    is_asked = name in texts or bool(asked & {"getattr", "attrgetter", "operator.attrgetter", "vars"})
    return not name.startswith("_") and name not in read and not is_asked


def _is_loaded(one: ast.Attribute) -> bool:
    return isinstance(one.ctx, ast.Load)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """List the methods of a file, each with its class, and then all functions, with ""."""
    inside = set()
    for cls in (one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)):
        for part in cls.body:
            if isinstance(part, FUNCTIONS):
                inside.add(part)
                yield cls.name, part
    yield from (("", one) for one in tree.body if isinstance(one, FUNCTIONS) and one not in inside)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """List what is in a function, but for classes that it defines: their methods stand for themselves."""
    for one in ast.iter_child_nodes(node):
        if not isinstance(one, ast.ClassDef):
            yield one
            yield from _inside(one)


def _reached(tree: ast.Module) -> set[str]:
    """Name the functions that forward or `__init__` names, or that such a function names in turn."""
    mentioned: dict[str, set[str]] = {}
    for _, function in _functions(tree):
        names = mentioned.setdefault(function.name, set())
        for one in ast.walk(function):
            is_read = isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load)
            names |= {one.attr} if is_read and isinstance(one, ast.Attribute) else set()
            names |= {one.id} if isinstance(one, ast.Name) else set()
    reached, todo = set(), {"forward", "__init__"}
    while todo:
        reached |= todo
        todo = {name for one in todo for name in mentioned.get(one, ()) if name in mentioned} - reached
    return reached


def _parts_in(function: ast.AST) -> set[str]:
    """Name what a method goes through of `self`, or of a model: `for block in self.blocks`."""
    loops = (one for one in ast.walk(function) if isinstance(one, (ast.For, ast.comprehension)))
    return {
        part.id
        for one in loops
        if re.search(r"\b(self|model|net|module)\b", ast.unparse(one.iter))
        for part in ast.walk(one.target)
        if isinstance(part, ast.Name)
    }


def _reads(node: ast.AST, name: str, *, is_own: bool, parts: set[str]) -> bool:
    """Whether it reads an attribute of `self`, if that is its own, or of a part of it, or of a model."""
    if not isinstance(node, ast.Attribute) or node.attr != name or not isinstance(node.ctx, ast.Load):
        return False
    holder = ast.unparse(node.value)
    if holder == "self":
        return is_own
    is_of_model = re.match(r"self\.|(\w*_)?(model|net|module)\b", holder) is not None
    return is_of_model or holder.partition(".")[0] in parts


def _forward_reads(node: ast.AST, name: str, owner: str) -> bool:
    """Whether a class reads an attribute in forward: its own, or that of a module in it."""
    if not isinstance(node, ast.ClassDef):
        return False
    forwards = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "forward"]
    return any(
        isinstance(one, ast.Attribute)
        and one.attr == name
        and isinstance(one.ctx, ast.Load)
        and (node.name == owner or ast.unparse(one.value) != "self")
        for forward in forwards
        for one in ast.walk(forward)
    )
