"""What holds modules or tensors among other things, written as a property of the replica that reads it."""

from dpdemo.checking.evidence import Evidence, Held
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.properties import attributes_in, home_of, is_filled_by, property_of, written_as
from dpdemo.checking.source import attribute_of, name_of_nn
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
    home, name = home_of(held), held.path.rpartition(".")[2]
    if home is None or not held.nesting or home.init.node.name != "__init__":
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
    each = f"    return {own.format(name=name)} if isinstance(one, {package}.{kind}) else one"
    returned = _returned(held.nesting, f"self._{name}")
    edits.before(home.next, property_of(name, ["def own(one):", each, *returned]))
    return edits.changes()


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
