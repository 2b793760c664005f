"""What `__init__` keeps on `self`, written as a property.

A method, a closure or an object that holds the model is made anew at each read, of what the replica that
reads has.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from dpdemo.checking.evidence import Held
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import (
    FUNCTIONS,
    Function,
    function_at,
    in_brackets,
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
    ] or [init.node]
    if alone and any(_sets(one, name) for one in others):
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
    found = list(assignments(home, name)) if home else []
    if home is None or not found:
        return ()
    if held.kind == "holder" and not any(home.me in names_in(value) for _, value in found):
        return ()  # it is made of modules that are new: each read would make others
    if _mentions(home, name) > len(found):
        return _filled_at_each_read(home, name)
    if len(found) == 1 and _is_own_method(held) and _Lines(home, name, found[0][1]).saves:
        return _by_its_name(home, name, *found[0])
    edits = Edits(home.init.file)
    cases: list[list[str]] = []
    for number, (statement, value) in enumerate(found):
        lines = _Lines(home, name, value)
        if not lines.is_whole or (held.kind == "holder" and lines.saves):
            return ()  # what is saved may hold modules itself
        kept = [*lines.saves, *([f"{home.me}._{name} = {number}"] if len(found) > 1 else [])]
        margin = "\n" + " " * statement.col_offset
        alone = "" if statement in home.init.node.body and len(home.init.node.body) > 1 else "pass   "
        edits.replace(statement, margin.join(kept) or f"{alone}# {name} is a property")
        cases.append(lines.body)
    body = cases[-1]
    for number, lines_of_case in reversed(list(enumerate(cases[:-1]))):
        inner = [f"    {line}" for line in lines_of_case]
        body = [f"if {home.me}._{name} == {number}:", *inner, *body]
    edits.before(home.next, property_of(name, body))
    return edits.changes()


def _is_own_method(held: Held) -> bool:
    """Whether it is a bound method of the very module that holds it, and no container of such."""
    if held.layout:
        return False
    owner = held.path.rpartition(".")[0]
    return (
        re.fullmatch(rf"the bound method \w+ that holds `({re.escape(owner) or '[^`.]+'})`", held.detail)
        is not None
    )


def _by_its_name(home: Home, name: str, statement: ast.stmt, value: ast.expr) -> tuple[Change, ...]:
    """Write a method that `__init__` chooses, of a table say, as a property that finds it by its name."""
    edits = Edits(home.init.file)
    edits.replace(statement, f"{home.me}._{name} = {in_brackets(home.init.text(value))}.__name__")
    edits.before(home.next, property_of(name, [f"return getattr(self, self._{name})"]))
    return edits.changes()


def _filled_at_each_read(home: Home, name: str) -> tuple[Change, ...]:
    """Write the statements of `__init__` that fill a container as a property; () where they do more."""
    target = f"{home.me}.{name}"
    moved = [one for one in home.init.node.body if mentions(one, target)]
    others = [
        node
        for one in moved
        for node in attributes_in(one)
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
    edits.before(home.next, property_of(name, [*local, f"return {name}"]))
    return edits.changes()


def property_of(name: str, body: list[str]) -> str:
    """Write a property with these lines."""
    return "\n".join(["@property", f"def {name}(self):", *(f"    {line}".rstrip() for line in body)])


def assignments(home: Home, name: str) -> Iterator[tuple[ast.stmt, ast.expr]]:
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


def _mentions(home: Home, name: str) -> int:
    return sum(ast.unparse(one) == f"{home.me}.{name}" for one in attributes_in(home.init.node))


def is_filled_by(method: ast.AST, name: str) -> bool:
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


def mentions(statement: ast.stmt, target: str) -> bool:
    """Whether a statement has an attribute that is written so."""
    return any(written_as(one, target) for one in attributes_in(statement))


def written_as(node: ast.AST, target: str) -> bool:
    """Whether a part is written so."""
    return ast.unparse(node) == target


def attributes_in(node: ast.AST) -> Iterator[ast.Attribute]:
    """List the attributes that a part reads or writes."""
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


_OF_TABLES = {"dict", "enumerate", "getattr", "list", "partial", "functools.partial", "range", "tuple", "zip"}
"""What may be called to make a table of what a model has: it may be made as often as one likes."""


def _made_of_the_model(home: Home) -> Iterator[tuple[str, ast.stmt]]:
    """List the functions in `__init__`, and what it gives a name: lambdas, or a table, of the model's."""
    for one in home.init.node.body:
        match one:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, one
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                lambdas = (part for part in ast.walk(value) if isinstance(part, ast.Lambda))
                called = {ast.unparse(part.func) for part in ast.walk(value) if isinstance(part, ast.Call)}
                is_table = home.me in names_in(value) and called <= _OF_TABLES
                if is_table or any(home.me in names_in(part) for part in lambdas):
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
