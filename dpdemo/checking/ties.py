"""How a line that ties a replica to its original, or to one GPU, is written anew."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence, Held, StateChange
from dpdemo.checking.lines import Own, attribute_of, function_at, functions_like, tree_of
from dpdemo.checking.looking import device_at
from dpdemo.reports.check import Place

_AS_MODULE = {"relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid", "gelu": "GELU", "elu": "ELU"}
_FUNCTION = rf"\b(?:torch|F|functional|nn\.functional)\.({'|'.join(_AS_MODULE)})\b(?!\()"
"""A function among modules, which a ModuleList does not take."""
_HANDED_OVER = ("ancestor", "holder")
"""Kinds of what is held that must not be kept at all."""


def moved_where_used(held: Held, use: Place | None, evidence: Evidence) -> tuple[str, str] | None:
    """Write the line that uses a tensor inside an object, and one that moves it there."""
    inner = re.search(r", as `(\w+)` of a ", held.detail)
    if inner is None or use is None:
        return None
    name = f".{held.path.rpartition('.')[2]}.{inner[1]}"
    after = re.sub(rf"{re.escape(name)}\b", f"{name}.to({device_at(use, evidence)})", use.code)
    return (use.code, after) if after != use.code else ("", "")


def cached_by_gpu(change: StateChange, evidence: Evidence) -> Own | None:
    """Write the lines of a method that keep a cache on `self`, and the same with each GPU's entries apart."""
    home = function_at(change.place)
    methods = [home, *functions_like(home)] if home else []
    method = next(
        (one for one in methods if any(one.text(part) == change.written for part in one.statements())), None
    )
    cache = attribute_of(change.path.rpartition(".")[2], method.node.args.args[0].arg) if method else ""
    keys = {part: list(_keys_of(part, cache)) for part in method.node.body} if method else {}
    touched = [index for index, found in enumerate(keys.values()) if found]
    is_cache = any(is_asked for found in keys.values() for _, is_asked in found)
    if method is None or not is_cache:
        return None
    here = Place(method.file, method.node.lineno)
    gpu = "device" if "device" in method.arguments() else device_at(here, evidence)
    lines = method.node.body[touched[0] : touched[-1] + 1]
    after = [
        method.own(one, *((key, f"({method.text(key)}, {gpu})") for key, _ in keys[one])).after
        for one in lines
    ]
    return method.rewritten(lines[0], lines[-1], "\n".join(after))


def _keys_of(statement: ast.stmt, cache: str) -> Iterator[tuple[ast.expr, bool]]:
    """List the keys by which a statement finds entries of a cache, and whether it asks if they are there."""
    for node in ast.walk(statement):
        match node:
            case ast.Subscript(value=value, slice=key) if ast.unparse(value) == cache:
                yield key, False
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[value]):
                if ast.unparse(value) == cache:
                    yield key, True


def _assignment(held: Held) -> tuple[str, str, str]:
    """Read the statement that puts a thing on `self`: its code, the attribute's name and the value."""
    code = held.place.code if held.place else ""
    for one in code.split("; "):
        found = re.match(r"self\.(\w+)\s*(?::[^=]+)?=\s*(.+?)\s*(?:#.*)?$", one)
        if found and found[1] == held.path.rpartition(".")[2]:
            return one, found[1], found[2]
    return code, "", ""


def buffer_repair(held: Held) -> tuple[str, str]:
    """Write the assignment of a plain tensor, and one that makes it a buffer."""
    code, name, value = _assignment(held)
    value = re.sub(r",?\s*device=[^,()]+(\([^()]*\))?|\.cuda\(\d*\)|\.to\(\"cuda[^)]*\)", "", value)
    if not name:
        return "", ""
    is_trained = "" if held.kind == "shared" else ".requires_grad_(False)"
    if value.startswith("{"):
        return code, f"self.{name} = nn.ParameterDict({value}){is_trained}"
    if value.startswith("[") or "for " in value:
        return code, f"self.{name} = nn.ParameterList({value}){is_trained}"
    if _is_tuple(value):
        return code, f"self.{name} = nn.ParameterList([{value[1:-1]}]){is_trained}"
    if value.count("(") != value.count(")"):
        return code, f'self.register_buffer("{name}", ..., persistent=False)'
    return code, f'self.register_buffer("{name}", {value}, persistent=False)'


def device_repair(place: Place | None, evidence: Evidence) -> tuple[str, str]:
    """Write a line that names a GPU, and the same with the device of an input."""
    if place is None or not place.code:
        return "", ""
    device = device_at(place, evidence)
    code = re.sub(
        r"device=(torch\.device\([^)]*\)|[\w.]+|\"[^\"]*\"|'[^']*')", f"device={device}", place.code
    )
    code = re.sub(r"\.cuda\([^)]*\)", f".to({device})", code)
    code = re.sub(
        r"\.to\((self\.[\w.]+|\"cuda[^\"]*\"|'cuda[^']*'|torch\.device\([^)]*\))", f".to({device}", code
    )
    constants = re.findall(r"\.to\(([A-Z_]\w*|[a-z]\w*)\)", code)  # such as DEVICE, the file's own
    if code == place.code and len(constants) == 1:
        code = code.replace(f".to({constants[0]})", f".to({device})")
    return (place.code, code) if code != place.code else ("", "")


def module_repair(held: Held) -> tuple[str, str]:
    """Write the assignment of modules in a list, or of a bound method, and one that replicas follow."""
    code, name, value = _assignment(held)
    target = f"self.{name}"
    if not name or held.kind in _HANDED_OVER:
        return (code, _handed_over(held, target)) if name else ("", "")
    if held.kind == "module":
        kind = "ModuleDict" if value.startswith("{") else "ModuleList"
        value = re.sub(_FUNCTION, lambda found: f"nn.{_AS_MODULE[found[1]]}()", value)
        is_whole = value.count("[") == value.count("]") and value.count("{") == value.count("}")
        return code, f"{target} = nn.{kind}({value if is_whole else '...'})"
    method = re.fullmatch(r"self\.(\w+)", value)
    if method:
        return code, f'{target}_name = "{method[1]}"   # and in forward: getattr(self, self.{name}_name)(...)'
    if value[0] in "[{(" and "bound method" in held.detail and "lambda" not in value:
        names = re.sub(r"\bself\.(\w+)(?![\w.(])", r'"\1"', value)
        return code, f"{target} = {names}   # and in forward: getattr(self, name)(...)"
    return code, _as_method(name, value)


def forward_repair(use: Place | None) -> Own | None:
    """Write the only line near its use that gives a module another forward, and a class that has it."""
    found = [
        node
        for node in ast.walk(tree_of(use.file) if use else ast.Module([], []))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)
        if node.targets[0].attr == "forward"
    ]
    function = function_at(Place(use.file, found[0].lineno)) if use and len(found) == 1 else None
    if function is None:
        return None
    (patch,) = found
    assert isinstance(patch.targets[0], ast.Attribute)  # noqa: S101 - so it was found
    owner = function.text(patch.targets[0].value)
    match patch.value:
        case ast.Call(func=called, args=[method, ast.AST() as bound]):
            if ast.unparse(called).endswith("MethodType") and function.text(bound) == owner:
                parts = f'"Patched", (type({owner}),), {{"forward": {function.text(method)}}}'
                return function.whole(patch, f"{owner}.__class__ = type({parts})")
    told = "# its instance in place of this line: replicas look forward up in their class"
    inner = "    def forward(self, *args, **kwargs): ...   # around super().forward(*args, **kwargs)"
    return function.rewritten(patch, patch, f"class Patched(type({owner})):   {told}\n{inner}")


def _handed_over(held: Held, target: str) -> str:
    """Write a call that is given the replica around it, which must not be kept."""
    if held.kind == "holder":
        return f"{target}(self, ...)   # in forward: what it needs is handed over at each call, and not kept"
    child = attribute_of(held.path.rpartition(".")[0])
    return f"{child}(..., self)   # handed over at each call by the forward around it, and not kept"


def _as_method(name: str, value: str) -> str:
    """Write a function that is kept on `self` as a method of the class."""
    function = _lambda_in(value)
    bound = re.fullmatch(r"((?:functools\.)?partial\()self\.(\w+)(, \w+=.*)?\)", value)
    if bound is not None:
        unbound = f"{bound[1]}type(self).{bound[2]}{bound[3] or ''})"
        return f"self.{name} = {unbound}   # and in forward: self.{name}(self, ...)"
    if function is None:
        return f"def {name}(self, *args): ...   # a method of the class, which replicas look up on themselves"
    given, body = ast.unparse(function.args), ast.unparse(function.body)
    return f"def {name}(self, {given}): return {body}   # a method of the class, not set in __init__"


def _is_tuple(value: str) -> bool:
    try:
        return isinstance(ast.parse(value, mode="eval").body, ast.Tuple) and value.startswith("(")
    except SyntaxError:
        return False


def _lambda_in(value: str) -> ast.Lambda | None:
    """Read a lambda; None where the text is something else."""
    try:
        found = ast.parse(value, mode="eval").body
    except SyntaxError:
        return None
    return found if isinstance(found, ast.Lambda) else None
