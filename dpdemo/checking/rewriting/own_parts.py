"""What holds modules or tensors among other things, written as a property of the replica that reads it."""

import ast
from collections.abc import Sequence

from dpdemo.checking.evidence import MIXED, MOVED_ALONG, Evidence, Held
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.properties import attributes_in, home_of, is_filled_by, property_of, written_as
from dpdemo.checking.source import attribute_of, name_of_nn, tree_of
from dpdemo.reports.check import Change


def with_own_modules(held: Held) -> tuple[Change, ...]:
    """Write a property that gives what `__init__` makes, with a replica's own modules; () where it cannot be.

    The modules must be registered elsewhere, by whatever names: the property looks them up by their paths.
    """
    return _as_property(held, "Module", "self.get_submodule(self._{name}_paths[one])", is_by_path=True)


def with_own_tensors(held: Held, evidence: Evidence) -> tuple[Change, ...]:
    """Write a property that gives what `__init__` makes, with its tensors moved to a replica's GPU.

    The GPU is that of a parameter of the same module; () where it has none.
    """
    owner = held.path.rpartition(".")[0]
    dot = f"{owner}." if owner else ""
    known = [one.removeprefix(dot) for one in evidence.scan.parameters if one.startswith(dot)]
    if not known:
        return ()
    return _as_property(held, "Tensor", f"one.to({attribute_of(known[0])}.device)")


def _as_property(held: Held, kind: str, own: str, *, is_by_path: bool = False) -> tuple[Change, ...]:
    home, name = home_of(held, alone=False), held.path.rpartition(".")[2]
    if home is None or not held.nesting or (is_by_path and home.init.node.name != "__init__"):
        return ()
    filling = [one for one in home.methods if is_filled_by(one, name)]
    if any(one.name == "forward" for one in filling):
        return ()
    edits, kept = Edits(home.init.file), f"{home.me}._{name}"
    for method in (home.init.node, *filling):
        for one in attributes_in(method):
            if written_as(one, f"{home.me}.{name}"):
                edits.replace(one, kept)
    if is_by_path:
        paths = f"{{one: path for path, one in {home.me}.named_modules()}}"
        edits.behind(home.init.node.body[-1], f"{kept}_paths = {paths}")
    package = name_of_nn(home.init.file) if kind == "Module" else "torch"
    own, is_own = own.format(name=name), f"isinstance(one, {package}.{kind})"
    if held.nesting[0] == MIXED:
        lines = _of_any(held.nesting[1:], own, is_own, f"self._{name}", home.init.file)
    else:
        each = f"    return {own} if {is_own} else one"
        lines = ["def own(one):", each, *_returned(held.nesting, f"self._{name}")]
    written = property_of(name, lines)
    stored = (
        one for method in home.methods for one in attributes_in(method) if isinstance(one.ctx, ast.Store)
    )
    if MOVED_ALONG in held.detail or any(written_as(one, f"{home.me}.{name}") for one in stored):
        written += f"\n\n@{name}.setter\ndef {name}(self, value):\n    self._{name} = value"
    edits.before(home.next, written)
    return edits.changes()


def _of_any(names: Sequence[str], own: str, is_own: str, value: str, file: str) -> list[str]:
    """Write what a property returns, where containers and objects of these classes are in each other."""
    objects = [one for one in names if one not in (*_WITHIN, "namedtuple")]
    known = {one.name for one in ast.walk(tree_of(file)) if isinstance(one, (ast.ClassDef, ast.alias))}
    lines = [f"if {is_own}:", f"    return {own}"]
    if "namedtuple" in names:
        lines += ['if hasattr(one, "_make"):', "    return one._make(map(own, one))"]
    for name, written in _WITHIN.items():
        if name in names:
            lines += [f"if isinstance(one, {name}):", f"    return {written}"]
    if objects:
        kinds = objects[0] if len(objects) == 1 else f"({', '.join(objects)})"
        is_object = f"isinstance(one, {kinds})" if known.issuperset(objects) else _IS_OBJECT
        lines += [
            f"if {is_object}:",
            "    new = type(one).__new__(type(one))",
            "    vars(new).update((key, own(part)) for key, part in vars(one).items())",
            "    return new",
        ]
    return ["def own(one):", *(f"    {line}" for line in (*lines, "return one")), f"return own({value})"]


_IS_OBJECT = 'hasattr(one, "__dict__") and not callable(one)'
"""What is asked where a class has no name in the model's file."""
_WITHIN = {
    "list": "[own(part) for part in one]",
    "tuple": "tuple(own(part) for part in one)",
    "dict": "{key: own(part) for key, part in one.items()}",
}
"""How a container is written anew, each of its parts being a replica's own."""


_NAMES = ("part", "inner", "innermost")
"""What stands in a container, and in one in it."""


def _returned(nesting: tuple[str, ...], value: str) -> list[str]:
    """Write what a property returns, in place of a value."""
    *outer, last = nesting
    if last != "object":
        return [f"return {_written(nesting, value, 'own({})')}"]
    inner = [
        "def like(holder):",
        "    new = type(holder).__new__(type(holder))",
        "    vars(new).update((key, own(one)) for key, one in vars(holder).items())",
        "    return new",
    ]
    return [*inner, f"return {_written(tuple(outer), value, 'like({})')}"]


def _written(nesting: tuple[str, ...], value: str, each: str, depth: int = 0) -> str:
    """Write a container like another one, with something done to each of its parts."""
    if not nesting:
        return each.format(value)
    name = _NAMES[depth]
    part = _written(nesting[1:], name, each, depth + 1)
    match nesting[0]:
        case "list":
            return f"[{part} for {name} in {value}]"
        case "dict":
            return f"{{key: {part} for key, {name} in {value}.items()}}"
        case "tuple":
            return f"tuple({part} for {name} in {value})"
        case _:
            return f"{value}._make({part} for {name} in {value})"
