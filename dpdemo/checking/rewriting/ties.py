"""How a line that ties a replica to its original, or to one GPU, is written anew."""

import ast
import itertools
import re
from collections.abc import Iterator, Sequence

from dpdemo.checking.evidence import Evidence, Held, StateChange
from dpdemo.checking.looking import crossed_devices, device_at, forward_place, is_entered
from dpdemo.checking.methods import functions_like, method_of, methods_in
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.forwards import stored
from dpdemo.checking.rewriting.handing import own_forward
from dpdemo.checking.rewriting.own_parts import with_own_modules, with_own_tensors
from dpdemo.checking.rewriting.properties import made_at_each_read
from dpdemo.checking.rewriting.registering import as_buffer, put_in, registered_one_by_one
from dpdemo.checking.source import FUNCTIONS, Function, attribute_of, class_at, function_at, names_in
from dpdemo.checking.writes import changes_in_place
from dpdemo.models.frames import is_installed
from dpdemo.reports.check import Change, Place

_AS_MODULE = {"relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid", "gelu": "GELU", "elu": "ELU"}
_FUNCTION = rf"\b(?:torch|F|functional|nn\.functional)\.({'|'.join(_AS_MODULE)})\b(?!\()"
"""A function among modules, which a ModuleList does not take."""


def moved_where_used(held: Held, use: Place | None, evidence: Evidence) -> tuple[Change, ...] | None:
    """Write the lines that use tensors of an object on `self`, and the same with each moved where it is used.

    None where they are no object's; () where nothing is seen to use them.
    """
    inner = re.search(r", as `(\w+)` of a (\w+)", held.detail)
    if inner is None or use is None:
        return None
    home = function_at(use)
    methods = [home, *functions_like(home)] if home else []
    edits = Edits(use.file)
    name = held.path.rpartition(".")[2]
    for method in {id(one.node): one for one in methods}.values():
        is_objects = class_at(Place(method.file, method.node.lineno)) == inner[2]
        device = device_at(Place(method.file, method.node.lineno), evidence)
        me = method.node.args.args[0].arg if method.node.args.args else ""
        if is_objects and (not is_entered(method, evidence) or _stores(method.node, me, held.tensors)):
            continue  # such as what moves them
        for node in ast.walk(method.node):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                owner = ast.unparse(node.value)
                if node.attr in held.tensors and (owner.endswith(f".{name}") or (is_objects and owner == me)):
                    edits.replace(node, f"{method.text(node)}.to({device})")
    return edits.changes()


def _stores(method: ast.AST, me: str, names: tuple[str, ...]) -> bool:
    parts = (one for one in ast.walk(method) if isinstance(one, ast.Attribute))
    return any(
        not isinstance(one.ctx, ast.Load) and ast.unparse(one) in {f"{me}.{name}" for name in names}
        for one in parts
    )


def cached_by_gpu(change: StateChange, evidence: Evidence) -> Repair | None:
    """Write the lines of a method that keep a cache on `self`, and the same with each GPU's entries apart."""
    home = function_at(change.place)
    methods = [home, *functions_like(home)] if home else []
    name = change.path.rpartition(".")[2]
    if (inner := of_an_object(change, evidence)) is not None:
        methods, name = inner
        written = (one for one in methods if _fills(one, name))
    else:
        written = (one for one in methods if _writes(one, change.written, name))
    method = next(written, None)
    cache = attribute_of(name, method.node.args.args[0].arg) if method else ""
    keys = {part: list(_keys_of(part, cache)) for part in method.node.body} if method else {}
    touched = [index for index, found in enumerate(keys.values()) if found]
    is_cache = any(is_asked for found in keys.values() for _, is_asked in found)
    if method is None or not is_cache or _is_always_written(method, change.written):
        return None
    here = Place(method.file, method.node.lineno)
    gpu = "device" if "device" in method.arguments() else device_at(here, evidence)
    lines = method.node.body[touched[0] : touched[-1] + 1]
    after = [
        method.own(one, *((key, f"({method.text(key)}, {gpu})") for key, _ in keys[one])).after
        for one in lines
    ]
    return method.rewritten(lines[0], lines[-1], "\n".join(after))


def of_an_object(change: StateChange, evidence: Evidence) -> tuple[list[Function], str] | None:
    """Find the methods of an object on `self` that changes, and the first of its attributes that does."""
    kind, forward = re.match(r"an? (\w+) \((\w+)=", change.single), forward_place(evidence)
    methods = methods_in(forward.file, kind[1], 0) if kind is not None and forward is not None else {}
    return (list(methods.values()), kind[2]) if kind is not None and methods else None


def _writes(method: Function, written: str, name: str) -> bool:
    """Whether a method has the statement that writes to a cache; where that makes it, one that fills it."""
    if re.search(rf"\.{name}\s*(:.*)?=[^=]", written):
        return _fills(method, name)
    return any(method.text(part) == written for part in method.statements())


def _fills(method: Function, name: str) -> bool:
    """Whether a method asks what entries a cache on its object has, and uses some."""
    me = method.node.args.args[0].arg if method.node.args.args else ""
    found = [is_asked for one in method.node.body for _, is_asked in _keys_of(one, attribute_of(name, me))]
    return any(found) and not all(found)


def _is_always_written(method: Function, written: str) -> bool:
    """Whether an entry is written without asking if it is there: then it comes of the batch."""
    before = itertools.takewhile(lambda one: method.text(one) != written, method.node.body)
    is_asked = any(isinstance(part, ast.Return) for one in before for part in ast.walk(one))
    return not is_asked and any(method.text(one) == written for one in method.node.body)


def _keys_of(statement: ast.stmt, cache: str) -> Iterator[tuple[ast.expr, bool]]:
    """List the keys by which a statement finds entries of a cache, and whether it asks if they are there."""
    for node in ast.walk(statement):
        match node:
            case ast.Subscript(value=value, slice=key) if ast.unparse(value) == cache:
                yield key, False
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[value]):
                if ast.unparse(value) == cache:
                    yield key, True


def buffer_repair(held: Held, evidence: Evidence, beside: Sequence[str] = ()) -> tuple[Change, ...]:
    """Write the assignment of plain tensors, and one that makes them buffers, with what reads them.

    With those `beside` it that the same statement gives a value.
    """
    if held.kind == "shared" and (changes := made_at_each_read(held)):
        return changes
    if held.layout.endswith(" of parameters") and not held.layout.startswith("dict"):
        return put_in(held, "ParameterList")
    if held.nesting:
        registered = registered_one_by_one(held) or moved_where_read(held, evidence)
        return registered or with_own_tensors(held, evidence)
    return as_buffer(held, beside) or moved_in_function(held) or _moved_in_closure(held, evidence)


def _moved_in_closure(held: Held, evidence: Evidence) -> tuple[Change, ...]:
    """Write the function that reads a tensor from around it, wherever it is made, with that moved."""
    for _, error in crossed_devices(evidence):
        function = function_at(error.place)
        edits = Edits(function.file) if function else None
        if function is None or edits is None or is_installed(function.file):
            continue
        own = {*function.arguments(), *(name for one in function.statements() for name in stored(one))}
        device = device_at(error.place, evidence)
        for one in ast.walk(function.node):
            is_read = isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
            if is_read and one.id in held.tensors and one.id not in own:  # type: ignore[attr-defined] # a name
                edits.replace(one, f"{function.text(one)}.to({device})")
        if changes := edits.changes():
            return changes
    return ()


def moved_in_function(held: Held) -> tuple[Change, ...]:
    """Write a function in `__init__` with the tensors that it has from there moved to its argument's GPU."""
    init = function_at(held.place)
    if init is None or not held.tensors:
        return ()
    edits = Edits(init.file)
    for node in ast.walk(init.node):
        if not isinstance(node, (*FUNCTIONS, ast.Lambda)) or node is init.node or not node.args.args:
            continue
        device = f"{node.args.args[0].arg}.device"
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.id in held.tensors:
                edits.replace(one, f"{one.id}.to({device})")
    return edits.changes()


_MOVED = {
    "list": "[one.to({device}) for one in {held}]",
    "tuple": "tuple(one.to({device}) for one in {held})",
    "dict": "{{key: one.to({device}) for key, one in {held}.items()}}",
    "names": "{{key: one.to({device}) for key, one in {held}.items()}}",
    "lists": "[[one.to({device}) for one in row] for row in {held}]",
}
"""How what a container holds is moved, by its layout."""


def moved_where_read(held: Held, evidence: Evidence) -> tuple[Change, ...]:
    """Write where methods read a container of tensors, and the same with each of them moved.

    For a container that more than `__init__` fills, as an `_apply` of the model's own does.
    """
    init, (kind, _, parts) = function_at(held.place), held.layout.partition(" of ")
    if init is None or is_installed(init.file) or parts != "tensors":
        return ()
    edits = Edits(init.file)
    for method in functions_like(init):
        if not method.node.args.args or method.node.name in _MOVERS:
            continue
        here = attribute_of(held.path.rpartition(".")[2], method.node.args.args[0].arg)
        device = device_at(Place(method.file, method.node.lineno), evidence)
        written = {id(node) for node in _changed_in(method.node)}
        subscripts = (one for one in ast.walk(method.node) if isinstance(one, ast.Subscript))
        elements = {id(one.value): one for one in subscripts}
        for node in ast.walk(method.node):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            if ast.unparse(node) != here or id(node) in written:
                continue
            element = elements.get(id(node)) if kind != "lists" else None
            if element is not None and not isinstance(element.slice, ast.Slice):
                edits.replace(element, f"{method.text(element)}.to({device})")
            else:
                edits.replace(node, _MOVED[kind].format(device=device, held=here))
    return edits.changes()


_MOVERS = ("_apply", "to", "cuda", "cpu")


def _changed_in(method: ast.AST) -> Iterator[ast.expr]:
    """List what has an element written, or a method called that changes it."""
    for node in ast.walk(method):
        match node:
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
                yield value
            case ast.Call(func=ast.Attribute(value=value, attr=called)) if changes_in_place(called):
                yield value


def module_repair(held: Held, evidence: Evidence) -> tuple[Change, ...]:
    """Write the assignment of modules in a list, or of a bound method, and one that replicas follow."""
    if held.kind == "ancestor":
        return tied_again(held, evidence)
    if held.kind != "module":
        return made_at_each_read(held) or with_own_modules(held)
    if held.layout in ("dict of modules", "lists of modules"):
        return registered_one_by_one(held)
    kind = "ModuleDict" if held.layout.startswith("names") else "ModuleList"
    owner = held.path.rpartition(".")[0]
    beside = [
        name
        for path, _, name in (one.path.rpartition(".") for one in evidence.scan.of_kind("module"))
        if path == owner and name != held.path.rpartition(".")[2]
    ]

    def as_modules(text: str) -> str:
        return re.sub(_FUNCTION, lambda found: f"nn.{_AS_MODULE[found[1]]}()", text)

    changes = put_in(held, kind, as_modules, beside)
    has_functions = any(re.search(_FUNCTION, one.before) for one in changes)
    if held.layout.endswith(" of modules") or (has_functions and held.nesting == ("list",)):
        return changes
    return with_own_modules(held)  # torch.nn has no container for all that is there


def tied_again(held: Held, evidence: Evidence) -> tuple[Change, ...]:
    """Write a first line of the forward around a child, which gives it the replica that is around it."""
    init, name = function_at(held.place), held.path.rpartition(".")[2]
    own, unseen = f"self.{name}", f"self.__dict__['{name}']"
    kinds = dict(evidence.scan.module_types)
    alike = [
        one
        for one in evidence.scan.of_kind("ancestor")
        if one.place == held.place and one.detail == held.detail
    ]
    lines, around_all = [], set()
    for one in alike:
        child = one.path.rpartition(".")[0]
        steps = child.split(".")
        around = [".".join(steps[:count]) for count in range(len(steps))]
        owners = [path for path in around if kinds.get(path) == held.detail]
        if len(owners) != 1 or init is None or init.node.name != "__init__":
            return ()
        around_all.add(owners[0])
        below = child.removeprefix(f"{owners[0]}." if owners[0] else "")
        values = [
            statement.value
            for statement in init.statements()
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) in (own, unseen)
        ]
        is_unseen = any(unseen in init.text(one).replace('"', "'") for one in init.statements())
        given = names_in(values[0]) & init.arguments() if len(values) == 1 else set()
        if len(given) != 1:
            return ()
        text = re.sub(rf"\b{given.pop()}\b", "self", init.text(values[0]))
        child = attribute_of(below)
        lines.append(f'{child}.__dict__["{name}"] = {text}' if is_unseen else f"{child}.{name} = {text}")
    forward = own_forward(evidence) if around_all == {""} else None
    if init is not None and around_all and "" not in around_all:
        forward = method_of(held.detail, "forward", init.file)
    if forward is None or is_installed(forward.file):
        return ()
    edits = Edits(forward.file)
    edits.first_in(forward, "\n".join(lines))
    return edits.changes()
