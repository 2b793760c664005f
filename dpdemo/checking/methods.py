"""The methods of the user's classes, found in the files that they are written in."""

import ast
import inspect
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from dpdemo.checking.evidence import Evidence
from dpdemo.checking.source import FUNCTIONS, Function, tree_of
from dpdemo.models.frames import is_users


def functions_like(function: Function) -> Iterator[Function]:
    """List the methods of the class that a function stands in, without `__init__`; a base class's too."""
    classes = [node for node in ast.walk(tree_of(function.file)) if isinstance(node, ast.ClassDef)]
    todo = [one for one in classes if function.node in one.body]
    seen: list[ast.ClassDef] = []
    while todo:
        seen.append(todo.pop(0))
        bases = {ast.unparse(base) for base in seen[-1].bases}
        todo += [one for one in classes if one.name in bases and one not in seen]
    for one in seen:
        yield from (
            Function(function.file, part)
            for part in one.body
            if isinstance(part, FUNCTIONS) and part.name != "__init__"
        )


def method_of(owner: str, name: str, file: str) -> Function | None:
    """Find a method in the only class of that name in a file."""
    classes = [one for one in ast.walk(tree_of(file)) if isinstance(one, ast.ClassDef) and one.name == owner]
    found = [
        part for one in classes for part in one.body if isinstance(part, FUNCTIONS) and part.name == name
    ]
    return Function(file, found[0]) if len(classes) == 1 and len(found) == 1 else None


def method_at(owner: str, name: str, file: str) -> Function | None:
    """Find a method of a class by the class's qualified name: `make.<locals>.Model`."""
    cls = class_called(owner, file)
    found = [one for one in cls.body if isinstance(one, FUNCTIONS) and one.name == name] if cls else []
    return Function(file, found[0]) if found else None


def class_called(owner: str, file: str) -> ast.ClassDef | None:
    """Find a class by its qualified name: `make.<locals>.Model`."""
    node: ast.AST | None = tree_of(file)
    for step in owner.replace(".<locals>", "").split("."):
        kinds = (*FUNCTIONS, ast.ClassDef)
        inner = [one for one in ast.walk(node) if isinstance(one, kinds) and one.name == step] if node else []
        node = inner[0] if inner else None
    return node if isinstance(node, ast.ClassDef) else None


def parts_of_the_model(evidence: Evidence) -> Iterator[tuple[str, list[ast.stmt]]]:
    """List by file the classes that the model is made of, and the functions of the file that these name."""
    for file in dict.fromkeys(file for _, file in evidence.scan.classes if file):
        found = (class_called(name, file) for name, known in evidence.scan.classes if known == file)
        classes: list[ast.stmt] = [one for one in found if one is not None]
        named = {
            one.id if isinstance(one, ast.Name) else getattr(one, "attr", "")
            for cls in classes
            for one in ast.walk(cls)
        }
        functions = [one for one in tree_of(file).body if isinstance(one, FUNCTIONS) and one.name in named]
        yield file, [*classes, *functions]


def seeds_itself(evidence: Evidence) -> bool:
    """Whether a method of the model, or a function that one calls, seeds a generator in each replica."""
    for _, parts in parts_of_the_model(evidence):
        classes = [one for one in parts if isinstance(one, ast.ClassDef)]
        methods = [one for cls in classes for one in cls.body if isinstance(one, FUNCTIONS)]
        run = "\n".join(ast.unparse(one) for one in methods if one.name != "__init__")
        helpers = [one for one in parts if isinstance(one, FUNCTIONS) and f"{one.name}(" in run]
        if "manual_seed(" in run or any("manual_seed(" in ast.unparse(one) for one in helpers):
            return True
    return False


def classes_of(file: str, name: str, line: int) -> list[ast.ClassDef]:
    """Find a class in a file, and those of the same file that it inherits from, itself first.

    Args:
        file: the file.
        name: what the class is called.
        line: a line of it, or of one that it inherits from, where several are called so.

    """
    known = [node for node in ast.walk(tree_of(file)) if isinstance(node, ast.ClassDef)]
    called = [one for one in known if one.name == name]
    around = [one for one in called if one.lineno <= line <= (one.end_lineno or 0)]
    todo = (around or [one for one in called if one.lineno > line] or called)[:1]
    found: list[ast.ClassDef] = []
    while todo:
        found.append(todo.pop(0))
        for base in found[-1].bases:
            before = [one for one in known if one.name == ast.unparse(base) and one.lineno < found[-1].lineno]
            todo += before[-1:]
    return found


def methods_in(file: str, name: str, line: int) -> dict[str, Function]:
    """Find the methods of a class in a file by their names, those that it inherits from one in it too."""
    return {
        part.name: Function(file, part)
        for cls in reversed(classes_of(file, name, line))
        for part in cls.body
        if isinstance(part, FUNCTIONS)
    }


def methods_of(owner: type) -> Iterator[Function]:
    """List the methods of a class, those that it inherits last."""
    for cls in owner.__mro__:
        yield from _own_methods(cls)


def without_setup(methods: Iterable[Function]) -> list[Function]:
    """Leave out the methods that `__init__` leads to and forward does not: they set up a model."""
    methods = list(methods)
    ran, setup = _reached(methods, "forward"), _reached(methods, "__init__") - {"__init__"}
    return [one for one in methods if one.node.name in ran or one.node.name not in setup]


def _reached(methods: Sequence[Function], first: str) -> set[str]:
    """Name a method, and the methods and properties that it leads to."""
    found, todo = set[str](), [first]
    while todo:
        name = todo.pop()
        called = [one.node for one in methods if one.node.name == name and name not in found]
        found |= {name} if called else set()
        todo += [part.attr for node in called for part in ast.walk(node) if isinstance(part, ast.Attribute)]
    return found


@cache
def _own_methods(cls: type) -> tuple[Function, ...]:
    try:
        file = inspect.getsourcefile(cls) or ""
        if not is_users(file):
            return ()
        _, first = inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return ()
    return tuple(
        Function(file, part)
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__ and _begins(node, first)
        for part in node.body
        if isinstance(part, FUNCTIONS)
    )


def _begins(node: ast.ClassDef, line: int) -> bool:
    return min([node.lineno, *(part.lineno for part in node.decorator_list)]) == line
