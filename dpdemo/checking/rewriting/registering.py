"""What `__init__` keeps on `self`, registered: as a buffer, in a container of torch.nn, or one by one."""

import ast
import builtins
import re
from collections.abc import Callable, Iterator, Sequence

from dpdemo.checking.evidence import Held
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.forwards import stored
from dpdemo.checking.rewriting.properties import (
    Home,
    assignments,
    attributes_in,
    home_of,
    is_filled_by,
    mentions,
    property_of,
)
from dpdemo.checking.source import name_of_nn, names_in
from dpdemo.reports.check import Change

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
        or any(is_filled_by(one, name) for one in home.methods)
    ):
        return ()
    target = f"{home.me}.{name}"
    places = [one for one in attributes_in(home.init.node) if ast.unparse(one) == target]
    body = home.init.node.body
    last = max((index for index, one in enumerate(body) if mentions(one, target)), default=-1)
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
        edits.before(home.next, property_of(name, [line.format(name=name) for line in _READ_WITHIN]))
        return edits.changes()
    lines = [
        f"for index, value in enumerate({values}):",
        f'    {home.me}.{way}(f"{name}_{{index}}", value{options})',
        _KEPT[kind].format(**words),
    ]
    edits.behind(body[last], "\n".join(lines))
    edits.before(home.next, property_of(name, [f"return {_READ[kind].format(name=name)}"]))
    return edits.changes()


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
    found = [value for _, value in assignments(home, name)] if home else []
    found += [value for one in (name, *beside) for value in _beside(home, name, one)] if home else []
    if home is None or not found:
        return ()
    edits = Edits(home.init.file)
    for value in found:
        edits.replace(value, f"{name_of_nn(home.init.file)}.{kind}({change(home.init.text(value))})")
    return edits.changes()


def as_buffer(held: Held, beside: Sequence[str] = ()) -> tuple[Change, ...]:
    """Write the statement that puts a lone tensor on `self`, and others, with buffers in their place."""
    home, name = home_of(held, alone=False), held.path.rpartition(".")[2]
    is_lone = held.detail.startswith("a tensor") and ", as `" not in held.detail
    if home is None or held.layout or not is_lone:
        return ()
    edits = Edits(home.init.file)
    for statement, value in assignments(home, name):
        made = {one for statement in home.init.statements() for one in stored(statement)}
        code = home.init.text(value) if names_in(value) & made else _without_device(home.init.text(value))
        edits.replace(statement, f'{home.me}.register_buffer("{name}", {code}, persistent=False)')
        return edits.changes()
    for statement in home.init.statements():
        own = {f"{home.me}.{one}": one for one in (name, *beside)}
        written = (one for one in attributes_in(statement) if isinstance(one.ctx, ast.Store))
        targets = [(one, own[ast.unparse(one)]) for one in written if ast.unparse(one) in own]
        found = [one for _, one in targets]
        if not isinstance(statement, ast.Assign) or name not in found:
            continue
        for node, one in targets:
            edits.replace(node, f"own_{one}")
        lines = [f'{home.me}.register_buffer("{one}", own_{one}, persistent=False)' for one in found]
        edits.behind(statement, "\n".join(lines))
        return edits.changes()
    return ()


def _without_device(code: str) -> str:
    """Write a new tensor without the GPU that it is put on: a buffer goes where its module goes."""
    return re.sub(r",?\s*device=[^,()\n]+(\([^()]*\))?|\.cuda\(\d*\)|\.to\(([\"'])cuda[^)]*\)", "", code)


def _beside(home: Home, name: str, other: str) -> Iterator[ast.expr]:
    """List the values that an attribute, or another, is given together: `self.a, self.b = [], []`."""
    for statement in home.init.statements():
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = [(ast.unparse(one), value) for one, value in zip(targets, values, strict=False)]
                if any(target == f"{home.me}.{name}" for target, _ in pairs):
                    yield from (value for target, value in pairs if target == f"{home.me}.{other}")
