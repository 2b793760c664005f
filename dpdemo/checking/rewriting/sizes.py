"""A size that forward takes from the data of its chunk, handed over as that of the whole batch."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence
from dpdemo.checking.looking import call_by_keyword, call_of
from dpdemo.checking.methods import parts_of_the_model
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.forwards import stored
from dpdemo.checking.rewriting.handing import own_forward
from dpdemo.checking.source import FUNCTIONS, Function, names_in

_OF_DATA = re.compile(r"\bmax\(|\bamax\(")


def size_handed_over(call: Call, evidence: Evidence) -> Repair | None:
    """Write forward's only line that takes a size from an argument, such as the longest, for any batch.

    Outside it is worked out of the whole batch, and handed over by its name to every replica.
    """
    function = own_forward(evidence)
    given = {name for name, _ in call.argument_structures}
    if function is None or function.node.args.vararg is not None or function.node.args.kwarg is not None:
        return None
    found = []
    for statement in function.statements():
        match statement:
            case ast.Assign(targets=[ast.Name(name)], value=value) if _OF_DATA.search(ast.unparse(value)):
                changed = {
                    one
                    for other in function.statements()
                    if other.lineno < statement.lineno
                    for one in stored(other)
                }
                reads = names_in(value) - {"int", "max", "torch", "len", "float"}
                if reads and reads <= given - changed and _is_number(value):
                    found.append((name, value))
    if len(found) != 1 or found[0][0] in function.arguments():
        return None
    ((name, value),) = found
    text = function.text(value)
    edits = Edits(function.file)
    edits.parameter(function, f"{name}=None")
    edits.replace(value, f"{text} if {name} is None else {name}")
    return Repair(None, call_of(call), call_by_keyword(call, **{name: text}), edits.changes())


def as_long_as_given(evidence: Evidence) -> Repair | None:
    """Write a helper's only line that takes a length from its data, with the length of what it cuts off."""
    found = [own for function in _functions(evidence) for own in _not_cut_by_data(function)]
    return found[0] if len(found) == 1 else None


def _functions(evidence: Evidence) -> Iterator[Function]:
    """List the methods of the model's parts, and the functions that these name."""
    for file, parts in parts_of_the_model(evidence):
        nodes = [one for part in parts for one in ast.walk(part)]
        yield from (Function(file, one) for one in nodes if isinstance(one, FUNCTIONS))


def _not_cut_by_data(function: Function) -> Iterator[Repair]:
    """Write each line that takes a length from the data, or cuts off at one, without that."""
    for statement in function.statements():
        match statement:
            case ast.Assign(targets=[ast.Name(name)], value=value) if _is_length(value):
                if cut := _cut_off(function.node, name):
                    yield function.whole(statement, f"{name} = {cut}   # as long in each replica")
            case ast.Assign() | ast.Return():
                for node in ast.walk(statement):
                    if isinstance(node, ast.Subscript) and _is_cut_by_data(node, function):
                        own = function.own(statement, (node, function.text(node.value)))
                        yield own._replace(after=f"{own.after}   # as long in each replica")


def _is_length(value: ast.expr) -> bool:
    return _is_number(value) and _OF_DATA.search(ast.unparse(value)) is not None


def _is_cut_by_data(node: ast.Subscript, function: Function) -> bool:
    """Whether it is `x[:, :int(lengths.max())]`, or `x[:, used]`: all but for an end that the data have."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    match parts:
        case [ast.Slice(None, None, None), ast.Name(used)]:
            made = [one for one in function.statements() if isinstance(one, ast.Assign)]
            made = [one for one in made if ast.unparse(one.targets[0]) == used]
            return any(re.search(r"\.(any|all)\((dim=|axis=)?0\)", ast.unparse(one)) for one in made)
    if not all(isinstance(one, ast.Slice) and one.lower is None and one.step is None for one in parts):
        return False
    ends = [one.upper for one in parts if isinstance(one, ast.Slice) and one.upper is not None]
    return bool(ends) and all(map(_is_length, ends))


def _cut_off(node: ast.AST, name: str) -> str:
    """Write the size of the first tensor that is cut off at a length; "" where none is."""
    for one in ast.walk(node):
        match one:
            case ast.Subscript(value=ast.Name(cut), slice=ast.Tuple(elts=parts)):
                for dim, part in enumerate(parts):
                    if isinstance(part, ast.Slice) and part.upper and ast.unparse(part.upper) == name:
                        return f"{cut}.size({dim})"
    return ""


def _is_number(value: ast.expr) -> bool:
    """Whether it is a number and no tensor, by how it is written."""
    text = ast.unparse(value)
    return re.match(r"int\(|max\(", text) is not None or text.endswith((".item()", ".max().tolist()"))
