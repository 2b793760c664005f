"""What `__init__` keeps on `self`, written as a property: each replica makes its own, of what is its own.

A method, a closure or an object that holds the model is made anew at each read, of the replica that
reads. A list, a tuple or a dict of tensors or modules is put together of what is registered one by one.
"""

import ast
import builtins
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dpdemo.checking.evidence import Held
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import (
    FUNCTIONS,
    Function,
    function_at,
    name_of_nn,
    names_in,
    to_the_left,
    tree_of,
)
from dpdemo.checking.writes import changes_in_place
from dpdemo.models.frames import is_installed
from dpdemo.reports.check import Change


class Home(NamedTuple):
    """The class that sets an attribute: its `__init__`, and the method that a property is put before."""

    init: Function
    next: ast.FunctionDef | ast.AsyncFunctionDef
    methods: list[ast.FunctionDef | ast.AsyncFunctionDef]

    @property
    def me(self) -> str:
        """What `__init__` calls the model."""
        return self.init.node.args.args[0].arg


def home_of(held: Held, *, alone: bool = True) -> Home | None:
    """Find the class that sets an attribute: in `__init__`, or another method; None where there is none.

    Args:
        held: the attribute.
        alone: whether no second method may set it.

    """
    init = function_at(held.place)
    name = held.path.rpartition(".")[2]
    if init is None or init.node.name == "forward" or is_installed(init.file):
        return None
    if not init.node.args.args or init.node.args.args[0].arg != "self":
        return None
    classes = (one for one in ast.walk(tree_of(init.file)) if isinstance(one, ast.ClassDef))
    owner = next((one for one in classes if init.node in one.body), None)
    methods = [one for one in owner.body if isinstance(one, FUNCTIONS)] if owner else []
    others = [one for one in methods if one is not init.node]
    after = [one for one in others if one.name == "forward"] + [
        one for one in others if one.name != "__init__"
    ]
    if not after or (alone and any(_sets(one, name) for one in others)):
        return None
    return Home(init, after[0], others)


def _sets(method: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == name and not isinstance(node.ctx, ast.Load)
        for node in ast.walk(method)
    )


def made_at_each_read(held: Held) -> tuple[Change, ...]:
    """Write `self.name = value` in `__init__` as a property of the same value; () where it cannot be."""
    home, name = home_of(held), held.path.rpartition(".")[2]
    found = list(_assignments(home, name)) if home else []
    if home is None or not found:
        return ()
    if held.kind == "holder" and not any(home.me in names_in(value) for _, value in found):
        return ()  # it is made of modules that are new: each read would make others
    if _mentions(home, name) > len(found):
        return _filled_at_each_read(home, name)
    edits = Edits(home.init.file)
    cases: list[list[str]] = []
    for number, (statement, value) in enumerate(found):
        lines = _Lines(home, name, value)
        if not lines.is_whole:
            return ()
        kept = [*lines.saves, *([f"{home.me}._{name} = {number}"] if len(found) > 1 else [])]
        margin = "\n" + " " * statement.col_offset
        alone = "" if statement in home.init.node.body and len(home.init.node.body) > 1 else "pass   "
        edits.replace(statement, margin.join(kept) or f"{alone}# {name} is a property")
        cases.append(lines.body)
    body = cases[-1]
    for number, lines_of_case in reversed(list(enumerate(cases[:-1]))):
        inner = [f"    {line}" for line in lines_of_case]
        body = [f"if {home.me}._{name} == {number}:", *inner, *body]
    edits.before(home.next, _property(name, body))
    return edits.changes()


def _filled_at_each_read(home: Home, name: str) -> tuple[Change, ...]:
    """Write the statements of `__init__` that fill a container as a property; () where they do more."""
    target = f"{home.me}.{name}"
    moved = [one for one in home.init.node.body if _has(one, target)]
    others = [
        node
        for one in moved
        for node in _attributes(one)
        if not isinstance(node.ctx, ast.Load) and ast.unparse(node) != target
    ]
    if others or name in home.init.arguments() or len(moved) == len(home.init.node.body):
        return ()
    lines = _Lines(home, name, *moved)
    local = [line.replace(target, name) for line in lines.body]
    edits = Edits(home.init.file)
    for one in moved[1:]:
        edits.replace(one, f"# {name} is filled there")
    margin = "\n" + " " * moved[0].col_offset
    edits.replace(moved[0], margin.join([*lines.saves, f"# {name} is a property"]))
    edits.before(home.next, _property(name, [*local, f"return {name}"]))
    return edits.changes()


def _property(name: str, body: list[str]) -> str:
    return "\n".join(["@property", f"def {name}(self):", *(f"    {line}".rstrip() for line in body)])


def _assignments(home: Home, name: str) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """List the statements of `__init__` that set an attribute and nothing else, with the value."""
    target = f"{home.me}.{name}"
    for statement in home.init.statements():
        match statement:
            case ast.Assign(targets=[ast.Attribute() as one], value=value):
                if ast.unparse(one) == target:
                    yield statement, value
            case ast.AnnAssign(target=ast.Attribute() as one, value=ast.expr() as value):
                if ast.unparse(one) == target:
                    yield statement, value


def _beside(home: Home, name: str, other: str) -> Iterator[ast.expr]:
    """List the values that an attribute, or another, is given together: `self.a, self.b = [], []`."""
    for statement in home.init.statements():
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = [(ast.unparse(one), value) for one, value in zip(targets, values, strict=False)]
                if any(target == f"{home.me}.{name}" for target, _ in pairs):
                    yield from (value for target, value in pairs if target == f"{home.me}.{other}")


def _mentions(home: Home, name: str) -> int:
    return sum(ast.unparse(one) == f"{home.me}.{name}" for one in _attributes(home.init.node))


def _attributes(node: ast.AST) -> Iterator[ast.Attribute]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Attribute))


class _Lines:
    """A value of `__init__`, or statements, as a property has them: what they need is kept on `self`."""

    def __init__(self, home: Home, name: str, *parts: ast.expr | ast.stmt) -> None:
        self._home, self._name = home, name
        self._inner = dict(_made_of_the_model(home))
        self._known = home.init.arguments() - {home.me}
        self._known |= {
            node.id
            for node in ast.walk(home.init.node)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        } - {part.id for part in _bound_in(home.init.node)}
        self._known -= {
            node.id
            for part in parts
            for node in ast.walk(part)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        self.saves: list[str] = []
        self._defined: dict[str, list[str]] = {}
        texts = [
            f"return {self._written(part)}"
            if isinstance(part, ast.expr)
            else to_the_left(self._written(part), part.col_offset)
            for part in parts
        ]
        defined = [line for lines in self._defined.values() for line in lines]
        self.body = "\n".join([*defined, *texts]).splitlines()
        self.is_whole = not any(isinstance(part, ast.Constant) for part in parts)

    def _written(self, node: ast.AST) -> str:
        """Write code with what it reads of `__init__`'s own names as attributes."""
        home = self._home
        inner = {part.id for part in _bound_in(node)} | _own_names(node)
        parts = Edits(home.init.file)
        for one in ast.walk(node):
            if not isinstance(one, ast.Name) or one.id in inner or not isinstance(one.ctx, ast.Load):
                continue
            if one.id in self._inner and one.id not in self._defined:
                self._defined[one.id] = []
                function = self._inner[one.id]
                self._defined[one.id] = [to_the_left(self._written(function), function.col_offset)]
            elif one.id in self._known and one.id not in self._inner:
                kept = f"{home.me}._{self._name}_{one.id}"
                parts.replace(one, kept)
                save = f"{kept} = {one.id}"
                self.saves += [] if save in self.saves else [save]
        return parts.applied_to(node)


def _made_of_the_model(home: Home) -> Iterator[tuple[str, ast.stmt]]:
    """List the functions in `__init__`, and what it gives a name with lambdas in it that read the model."""
    for one in home.init.node.body:
        match one:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, one
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                lambdas = (part for part in ast.walk(value) if isinstance(part, ast.Lambda))
                if any(home.me in names_in(part) for part in lambdas):
                    yield name, one


def _own_names(node: ast.AST) -> set[str]:
    """List the names that functions and lambdas in a part give a value, arguments and others."""
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, (*FUNCTIONS, ast.Lambda)):
            given = one.args
            known = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            found |= {part.arg for part in known if part is not None}
            found |= {
                part.id
                for part in ast.walk(one)
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            }
    return found


def _bound_in(node: ast.AST) -> Iterator[ast.Name]:
    """List the names that comprehensions in a part loop over."""
    for one in ast.walk(node):
        if isinstance(one, ast.comprehension):
            yield from (part for part in ast.walk(one.target) if isinstance(part, ast.Name))


_WITHIN = """\
for index, values in enumerate({local}):
    for number, value in enumerate(values):
        {me}.{way}(f"{name}_{{index}}_{{number}}", value{options})
{me}.{name}_counts = [len(values) for values in {local}]"""
"""Of a list of lists, or of tuples."""
_READ_WITHIN = (
    'return [[getattr(self, f"{name}_{{index}}_{{number}}") for number in range(count)]',
    "        for index, count in enumerate(self.{name}_counts)]",
)
_WAYS = {
    "tensors": ("register_buffer", ", persistent=False"),
    "parameters": ("register_parameter", ""),
    "modules": ("add_module", ""),
}
_KEPT = {
    "list": "{me}.{name}_count = len({local})",
    "tuple": "{me}.{name}_count = len({local})",
    "dict": "{me}.{name}_keys = list({local})",
    "names": "{me}.{name}_keys = list({local})",
}
_ALL = 'getattr(self, f"{name}_{{index}}") for index'
_READ = {
    "list": f"[{_ALL} in range(self.{{name}}_count)]",
    "tuple": f"tuple({_ALL} in range(self.{{name}}_count))",
    "dict": f"{{{{key: {_ALL}, key in enumerate(self.{{name}}_keys)}}}}",
    "names": f"{{{{key: {_ALL}, key in enumerate(self.{{name}}_keys)}}}}",
}


def registered_one_by_one(held: Held) -> tuple[Change, ...]:
    """Write what is in a list, tuple or dict as buffers, parameters or modules, joined by a property.

    () where the container is not filled in `__init__` alone, or holds other things beside.
    """
    home, name = home_of(held), held.path.rpartition(".")[2]
    kind, _, parts = held.layout.partition(" of ")
    if (
        home is None
        or kind not in (*_READ, "lists")
        or parts not in _WAYS
        or any(_fills(one, name) for one in home.methods)
    ):
        return ()
    target = f"{home.me}.{name}"
    places = [one for one in _attributes(home.init.node) if ast.unparse(one) == target]
    body = home.init.node.body
    last = max((index for index, one in enumerate(body) if _has(one, target)), default=-1)
    if last < 0 or body[last].lineno == home.init.node.lineno:
        return ()
    taken = home.init.arguments() | {one.id for one in ast.walk(home.init.node) if isinstance(one, ast.Name)}
    local = name if name not in {*taken, *dir(builtins)} else f"own_{name}"
    edits = Edits(home.init.file)
    for one in places:
        edits.replace(one, local)
    words = {"me": home.me, "name": name, "local": local}
    values = f"{local}.values()" if kind in ("dict", "names") else local
    way, options = _WAYS[parts]
    if kind == "lists":
        edits.behind(body[last], _WITHIN.format(way=way, options=options, **words))
        edits.before(home.next, _property(name, [line.format(name=name) for line in _READ_WITHIN]))
        return edits.changes()
    lines = [
        f"for index, value in enumerate({values}):",
        f'    {home.me}.{way}(f"{name}_{{index}}", value{options})',
        _KEPT[kind].format(**words),
    ]
    edits.behind(body[last], "\n".join(lines))
    edits.before(home.next, _property(name, [f"return {_READ[kind].format(name=name)}"]))
    return edits.changes()


def _has(statement: ast.stmt, target: str) -> bool:
    return any(ast.unparse(one) == target for one in _attributes(statement))


def _fills(method: ast.AST, name: str) -> bool:
    """Whether a method changes a container: what a property returns would be another one."""
    for node in ast.walk(method):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=known), attr=called)):
                if known == name and changes_in_place(called):
                    return True
            case ast.Subscript(value=ast.Attribute(attr=known), ctx=ast.Store() | ast.Del()):
                if known == name:
                    return True
    return False


def put_in(
    held: Held, kind: str, change: Callable[[str], str] = str, beside: Sequence[str] = ()
) -> tuple[Change, ...]:
    """Write a container with one of `torch.nn` around it, which registers what it holds.

    Args:
        held: what is in a plain container.
        kind: "ModuleList", "ModuleDict" or "ParameterList".
        change: what else to change in the code of the container.
        beside: attributes that are to be put in one, too, where the same statement gives them a value.

    """
    home, name = home_of(held), held.path.rpartition(".")[2]
    found = [value for _, value in _assignments(home, name)] if home else []
    found += [value for one in (name, *beside) for value in _beside(home, name, one)] if home else []
    if home is None or not found:
        return ()
    edits = Edits(home.init.file)
    for value in found:
        edits.replace(value, f"{name_of_nn(home.init.file)}.{kind}({change(home.init.text(value))})")
    return edits.changes()


def as_buffer(held: Held) -> tuple[Change, ...]:
    """Write the statement that puts a lone tensor on `self` with a buffer in its place."""
    home, name = home_of(held, alone=False), held.path.rpartition(".")[2]
    if home is None or held.layout:
        return ()
    edits = Edits(home.init.file)
    for statement, value in _assignments(home, name):
        code = _without_device(home.init.text(value))
        edits.replace(statement, f'{home.me}.register_buffer("{name}", {code}, persistent=False)')
        return edits.changes()
    for statement in home.init.statements():
        one = next(
            (part for part in _attributes(statement) if ast.unparse(part) == f"{home.me}.{name}"), None
        )
        if isinstance(statement, ast.Assign) and one is not None and isinstance(one.ctx, ast.Store):
            edits.replace(one, f"own_{name}")
            edits.behind(statement, f'{home.me}.register_buffer("{name}", own_{name}, persistent=False)')
            return edits.changes()
    return ()


def _without_device(code: str) -> str:
    """Write a new tensor without the GPU that it is put on: a buffer goes where its module goes."""
    return re.sub(r",?\s*device=[^,()\n]+(\([^()]*\))?|\.cuda\(\d*\)|\.to\(([\"'])cuda[^)]*\)", "", code)
