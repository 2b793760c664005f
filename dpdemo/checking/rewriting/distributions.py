"""An object that a part of the model makes of tensors, such as a distribution, made outside instead."""

import ast
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence, Leaf
from dpdemo.checking.looking import result_place
from dpdemo.checking.methods import parts_of_the_model
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.calling import around_call, result_names
from dpdemo.checking.rewriting.results import part_at, whole_return
from dpdemo.checking.rewriting.turned import outside_name
from dpdemo.checking.source import FUNCTIONS, Function, names_in


def made_of_what_a_part_returns(leaf: Leaf, evidence: Evidence, call: Call | None) -> Repair | None:
    """Write the `return` of a part's forward with the tensors alone, and the object behind the call.

    None where the model does more with the object than to return it, or several parts make such.
    """
    place = result_place(evidence, call)
    part, end = part_at(place, leaf.path), whole_return(place)
    if part is None or end is None or call is None or part.path != leaf.path:
        return None
    found = [pair for pair in _makers(leaf.type, evidence) if pair[0].node is not part.function.node]
    if not isinstance(part.node, ast.Call) or len(found) != 1:
        return None
    function, statement, made = found[0]
    names = result_names(end[2])
    target = outside_name(leaf.path, names)
    pieces = list(_pieces(made))
    rest = names_in(made) - {name for one in pieces for name in names_in(one)}
    if not target or not pieces or function.node.args.args[0].arg in rest:
        return None
    texts = list(dict.fromkeys(map(function.text, pieces)))
    of_each = {text: f"{target}[{index}]" if len(texts) > 1 else target for index, text in enumerate(texts)}
    outside = function.own(statement, *((one, of_each[function.text(one)]) for one in pieces)).after
    then = [f"{target} = {outside.removeprefix('return ')}"]
    own = function.own(statement, (made, ", ".join(texts)))
    return own._replace(also=(around_call(call, names, then=then),))


def _makers(kind: str, evidence: Evidence) -> Iterator[tuple[Function, ast.Return, ast.Call]]:
    """List where a `forward` of the model's parts returns an object of a class."""
    for file, parts in parts_of_the_model(evidence):
        for node in (one for part in parts for one in ast.walk(part)):
            if isinstance(node, FUNCTIONS) and node.name == "forward" and node.args.args:
                function = Function(file, node)
                for statement in function.statements():
                    match statement:
                        case ast.Return(value=ast.Call(func=func) as made) if _last(func) == kind:
                            yield function, statement, made


def _pieces(made: ast.Call) -> Iterator[ast.expr]:
    """List the tensors that an object is made of, and those of the objects among its arguments."""
    for one in (*made.args, *(given.value for given in made.keywords)):
        if isinstance(one, ast.Call) and _last(one.func)[:1].isupper():
            yield from _pieces(one)
        elif not isinstance(one, ast.Constant):
            yield one


def _last(called: ast.expr) -> str:
    return ast.unparse(called).rpartition(".")[2]
