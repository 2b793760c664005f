"""Arguments handed over in a form that scatter can cut, and forward's first line, which undoes it.

So what forward computes stays the same, on one GPU and on several: the call and forward change together.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dpdemo.checking.evidence import Call, Evidence, Leaf
from dpdemo.checking.looking import call_by_keyword, call_of, forward_place, top_name
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import Function, function_at, tree_of
from dpdemo.models.frames import is_installed
from dpdemo.reports.check import Change

_MAKERS = ("as_tensor", "tensor", "from_numpy")
_CASTS = ("float", "double", "half", "long", "int", "bool")


class Given(NamedTuple):
    """One argument, or a part of one: what the call hands over, and how forward takes it back.

    `there` and `back` are code with the value as `{}`.
    """

    path: str
    there: str
    back: str = ""


def own_forward(evidence: Evidence) -> Function | None:
    """Find the model's forward; None where it is a library's, and not the user's to change."""
    function = function_at(forward_place(evidence))
    return None if function is None or is_installed(function.file) else function


def handed_over(
    given: Sequence[Given],
    call: Call,
    evidence: Evidence,
    *,
    needed: str = "",
    by_keyword: bool = False,
) -> Repair | None:
    """Write a call with other arguments, and forward with a first line for each that takes it back.

    Args:
        given: what is handed over otherwise.
        call: the call as it is.
        evidence: what the check saw.
        needed: a line that forward needs before, such as an import.
        by_keyword: whether all arguments go by keyword, so that they make one list of chunks.

    Returns:
        The changes; None where an argument lies too deep, or forward has no name for it.

    """
    changed = _arguments(given)
    back = [one for one in given if one.back]
    function = own_forward(evidence)
    if changed is None or (back and function is None):
        return None
    also: tuple[Change, ...] = ()
    if function is not None and back:
        lines = [line_back(one, function) for one in back]
        if not all(lines):
            return None
        edits = Edits(function.file)
        edits.first_in(function, "\n".join([*([needed] if needed else []), *lines]))
        also = edits.changes()
    write = call_by_keyword if by_keyword else call_of
    return Repair(None, call_of(call), write(call, **changed), also)


def _arguments(given: Sequence[Given]) -> dict[str, str] | None:
    """Write each argument of the call that changes; those with a part that does as a new dict or list."""
    changed: dict[str, str] = {}
    for one in given:
        name = top_name(one.path)
        value = one.there.replace("{}", one.path)
        if name == one.path:
            changed[name] = value
            continue
        part = _part(one.path)
        if part is None:
            return None
        changed[name] = part.format(changed.get(name, name), value)
    return changed


def _part(path: str) -> str | None:
    """Write how a part right in a dict, a tuple or a named one is replaced; None where it lies deeper.

    `{0}` is what it is a part of, and `{1}` what takes its place.
    """
    if found := re.fullmatch(r"\w+\[('[^'{}]*')\]", path):
        return f"{{{{**{{0}}, {found[1]}: {{1}}}}}}"
    if found := re.fullmatch(r"\w+\[(\d+)\]", path):
        return f"(*{{0}}[:{found[1]}], {{1}}, *{{0}}[{int(found[1]) + 1}:])"
    found = re.fullmatch(r"\w+\.(\w+)", path)
    return f"{{0}}._replace({found[1]}={{1}})" if found else None


def line_back(given: Given, function: Function) -> str:
    """Write the line of forward that takes an argument back; "" where forward has no such name."""
    name, part = top_name(given.path), _part(given.path)
    if name not in function.arguments():
        return ""
    back = given.back.replace("{}", given.path)
    if name != given.path:
        return f"{name} = {part.format(name, back)}" if part else ""
    return f"{name} = {f'{name} if {name} is None else ' if _may_be_none(name, function) else ''}{back}"


def _may_be_none(name: str, function: Function) -> bool:
    given = function.node.args
    positional = [*given.posonlyargs, *given.args]
    pairs = [*zip(reversed(positional), reversed(given.defaults), strict=False)]
    defaults = {one.arg: code for one, code in pairs}
    defaults |= {one.arg: code for one, code in zip(given.kwonlyargs, given.kw_defaults, strict=True) if code}
    default = defaults.get(name)
    return isinstance(default, ast.Constant) and default.value is None


def whole(leaf: Leaf, call: Call) -> Given:
    """Hand over a tensor once for each sample, of which forward takes the first: all have it whole."""
    rows = _number_of_rows(call, but=leaf.path)
    shape = leaf.shape or ()
    if call.dim == 0:
        return Given(leaf.path, f"{{}}.expand({', '.join([rows, *['-1'] * len(shape)])})", "{}[0]")
    sizes = ["-1"] * len(shape)
    sizes.insert(call.dim, rows)
    return Given(
        leaf.path,
        f"{{}}.unsqueeze({call.dim}).expand({', '.join(sizes)})",
        f"{{}}.select({call.dim}, 0)",
    )


def _number_of_rows(call: Call, but: str) -> str:
    batch = next(
        (one for one in call.tensor_arguments if one.size(call.dim) == call.rows and one.path != but), None
    )
    if batch is None:
        return str(call.rows)
    return f"len({batch.path})" if call.dim == 0 else f"{batch.path}.size({call.dim})"


ROWS = ("rows", "row_numbers", "numbers_of_the_rows")


def numbered(path: str, taken: str, call: Call, evidence: Evidence, length: str = "len({})") -> Repair | None:
    """Hand over the numbers of the rows beside what every replica gets whole, and take those in forward.

    Args:
        path: what is not cut: a list of texts, say.
        taken: forward's code for the rows that `rows` numbers, with what it is of as `{}`.
        call: the call as it is.
        evidence: what the check saw.
        length: how many rows there are, with the value as `{}`.

    """
    return with_another(Given(path, "{}", taken), ROWS, f"torch.arange({length})", call, evidence)


def with_another(
    given: Given, names: Sequence[str], value: str, call: Call, evidence: Evidence
) -> Repair | None:
    """Write a call with one argument more, by which forward takes back another.

    Args:
        given: what is handed over otherwise; in `back` the first of `names` stands for the other.
        names: what it may be called: the first that forward has no use for.
        value: what it is, with the argument as `{}`.
        call: the call as it is.
        evidence: what the check saw.

    """
    function = own_forward(evidence)
    name = top_name(given.path)
    if function is None or name not in function.arguments():
        return None
    rest = function.node.args.vararg
    if rest is not None and rest.arg in (known for known, _ in call.argument_structures):
        return None  # what it gathers can't be handed over by keyword
    used = {node.id for node in ast.walk(function.node) if isinstance(node, ast.Name)}
    beside = next((one for one in names if one not in used | function.arguments()), f"its_{names[0]}")
    back = given.back.replace(names[0], beside)
    line = line_back(given._replace(back=f"{{}} if {beside} is None else {back}"), function)
    changed = _arguments([given]) if given.there != "{}" else {}
    if not line or changed is None or (name != given.path and _part(given.path) is None):
        return None
    edits = Edits(function.file)
    edits.parameter(function, f"{beside}=None")
    edits.first_in(function, line)
    after = call_by_keyword(call, **changed, **{beside: value.replace("{}", given.path)})
    return Repair(None, call_of(call), after, edits.changes())


def made_by_forward(path: str, call: Call, evidence: Evidence) -> Repair | None:
    """Hand over the tensor that forward makes of a list or an array, where it does nothing else with it."""
    function = own_forward(evidence)
    if function is None:
        return None
    made = list(_made(path, function))
    texts = {ast.unparse(_without_device(call_)) for call_, _ in made}
    text = next(iter(texts), "self")
    if len(texts) != 1 or re.search(r"\bself\b", text):
        return None
    inside = {id(part) for call_, _ in made for part in ast.walk(call_)}
    rest = [node for node in ast.walk(function.node) if _is(node, path) and id(node) not in inside]
    takes_tensors = "as_tensor(" in text
    if rest and not takes_tensors:
        return None
    edits = Edits(function.file)
    if not takes_tensors:
        for call_, _ in made:
            edits.replace(call_, path)
    cast = next((f".{cast}()" for _, cast in made if cast), "")
    code = f"{text}{cast}"
    changed = _arguments([Given(path, code)])
    return None if changed is None else Repair(None, call_of(call), call_of(call, **changed), edits.changes())


def _is(node: ast.AST, path: str) -> bool:
    return isinstance(node, ast.expr) and ast.unparse(node) == path


def _made(path: str, function: Function) -> Iterator[tuple[ast.Call, str]]:
    """List forward's calls that make a tensor of an argument, each with the type that it is cast to."""
    casts = {
        id(node.func.value): node.func.attr
        for node in ast.walk(function.node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CASTS
    }
    for node in ast.walk(function.node):
        match node:
            case ast.Call(func=ast.Attribute(attr=made), args=[given, *_]):
                if made in _MAKERS and _is(given, path):
                    yield node, casts.get(id(node), "")


def _without_device(made: ast.Call) -> ast.Call:
    return ast.Call(made.func, made.args, [one for one in made.keywords if one.arg != "device"])


def torch_in(function: Function) -> str:
    """Write the line that forward needs before it can say `torch`; "" where its file imports it."""
    for node in tree_of(function.file).body:
        if isinstance(node, ast.Import) and any((one.asname or one.name) == "torch" for one in node.names):
            return ""
    return "import torch"
