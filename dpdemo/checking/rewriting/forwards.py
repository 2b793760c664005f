"""The model's forward as statements: which run layers, and what each reads from those before it."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpdemo.checking.evidence import Call, Evidence, Mixing
from dpdemo.checking.looking import forward_place, top_name
from dpdemo.checking.methods import functions_like, method_of
from dpdemo.checking.source import Function, attribute_of, function_at

_NUMBER = r"\.item\(\)|\blen\(|\.size\(|\.shape|\b(float|int|bool)\(|\.(mean|sum)\(\s*\)$"
"""The code of a number, which is computed anew outside and not gathered."""
_MADE = r"torch\.(arange|eye|tensor|ones|zeros|full|linspace|triu|tril)\("
"""The code of a tensor that is no sample's, and made anew as well."""
_REDUCED = r"\.(mean|sum|std|var|amax|amin|median)\((dim=)?[\[(]?0\b"
"""The code of what a batch comes to, which has no rows to be gathered: computed anew of all rows."""
_COMPUTED_ANEW = rf"{_NUMBER}|{_MADE}|{_REDUCED}"
_MODEL = "model.module"
_OF_MODULES = (
    *("parameters", "named_parameters", "buffers", "named_buffers"),
    *("modules", "named_modules", "children", "named_children", "state_dict", "load_state_dict"),
    *("eval", "train", "zero_grad", "requires_grad_"),
)
"""Methods of a layer that do not run it."""


_OF_LISTS = ("enumerate", "zip", "len", "list", "tuple", "reversed", "range")
"""Functions that go through a list of layers, and run none."""


@dataclass(frozen=True)
class Forward:
    """The model's own forward: its statements, and what its names stand for."""

    function: Function
    layers: frozenset[str]
    parameters: frozenset[str]
    recurrent: frozenset[str]
    modules: frozenset[str]
    call: Call
    inner: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The code of what runs in modules of the user's that the model holds, by their names."""
    quiet: frozenset[str] = frozenset()
    """Methods of layers, as forward calls them, that change the layer's weights and run nothing."""
    mixing: Mixing | None = None
    """Where it was seen to mix samples."""

    @property
    def me(self) -> str:
        """What it calls the model."""
        return self.function.node.args.args[0].arg

    @property
    def body(self) -> list[ast.stmt]:
        """Its statements as the call goes through them, without what it says of itself."""
        return self._way(self.function.node.body[ast.get_docstring(self.function.node) is not None :])

    def _way(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Follow `if mask is None: return ...`, as the call went, or as far as its arguments tell."""
        for index, one in enumerate(body):
            if isinstance(one, ast.If) and leaves(one):
                blocks = [block for block in (one.body, one.orelse) if any(map(self._is_end, block))]
                if blocks:
                    return [*body[:index], *self._way(blocks[0])]
                is_taken = self._is_taken(one.test)
                if is_taken and isinstance(one.body[-1], ast.Return):
                    return [*body[:index], *one.body]
                if is_taken is False and one.orelse and isinstance(one.orelse[-1], ast.Return):
                    return [*body[:index], *one.orelse]
        return body

    def is_passed(self, statement: ast.stmt) -> bool:
        """Whether a statement that may leave forward does not, in this call."""
        if self.call.returned_at is not None:
            return not self._is_end(statement)
        return (
            isinstance(statement, ast.If) and not statement.orelse and self._is_taken(statement.test) is False
        )

    def _is_end(self, statement: ast.stmt) -> bool:
        """Whether the call returned in a statement, or in one within it."""
        at = self.call.returned_at
        if at is None or at.file != self.function.file:
            return False
        return statement.lineno <= at.line <= (statement.end_lineno or 0)

    def _is_taken(self, test: ast.expr) -> bool | None:
        match test:
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as how], comparators=[ast.Constant(None)]
            ):
                given = dict(self.call.argument_structures).get(name, "None")
                is_known = name in self.function.arguments() and not any(
                    name in stored(one) for one in self.function.node.body
                )
                return (given == "None") == isinstance(how, ast.Is) if is_known else None
        return None

    def reads_layer(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether a layer is run in a part of it, or in a method that the part calls."""
        return any(self._is_layer(one, depth) for one in ast.walk(node))

    def _is_layer(self, node: ast.AST, depth: int) -> bool:
        if not isinstance(node, ast.Attribute) or ast.unparse(node.value) not in (self.me, "super()"):
            return False
        if node.attr in self.layers or ast.unparse(node.value) == "super()":
            return True
        methods = (one for one in functions_like(self.function) if one.node.name == node.attr)
        return depth < 2 and any(
            self.reads_layer(statement, depth + 1) for one in methods for statement in one.node.body
        )

    def runs_layer(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether a layer is called in a part of it, and not just written to."""
        return any(self._calls_layer(one, depth) for one in ast.walk(node) if isinstance(one, ast.Call))

    def _calls_layer(self, call: ast.Call, depth: int) -> bool:
        called = call.func
        if ast.unparse(called) in self.quiet:
            return False
        if self._runs_what_it_is_given(call):
            return True
        if not self.reads_layer(called) or self.is_about_parameters(called):
            return False
        methods = [
            one
            for one in functions_like(self.function)
            if ast.unparse(called) == f"{self.me}.{one.node.name}"
        ]
        inner = (statement for one in methods for statement in one.node.body)
        return not methods or (depth < 2 and any(self.runs_layer(one, depth + 1) for one in inner))

    def is_about_parameters(self, called: ast.expr) -> bool:
        """Whether what is called is a method of a parameter, or one of a layer that does not run it.

        So is a method of what that gives: `self.fc.state_dict().items()`.
        """
        if isinstance(called, ast.Attribute) and called.attr in _OF_MODULES:
            return True
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Call):
            return self.is_about_parameters(called.value.func)
        return any(f"{ast.unparse(called)}.".startswith(f"{one}.") for one in self.parameters)

    def hands_over_layer(self, node: ast.AST) -> bool:
        """Whether a layer itself is given to a function, or another name, and may run unseen.

        A method of the model's own that is given one is known to run it.
        """
        given: list[ast.expr] = []
        for one in ast.walk(node):
            if isinstance(one, ast.Call) and ast.unparse(one.func) not in _OF_LISTS:
                given += [] if self._runs_what_it_is_given(one) else _arguments_of(one)
            elif isinstance(one, ast.Assign):
                given.append(one.value)
        return any(map(self._is_a_layer, given))

    def _runs_what_it_is_given(self, call: ast.Call) -> bool:
        """Whether a method of the model's own is called with layers, each of which it calls."""
        called = ast.unparse(call.func)
        methods = (one for one in functions_like(self.function) if called == f"{self.me}.{one.node.name}")
        method = next(methods, None)
        names = [one.arg for one in method.node.args.args[1:]] if method is not None else []
        bound = [*zip(names, call.args, strict=False), *((one.arg, one.value) for one in call.keywords)]
        layers = {name for name, value in bound if self._is_a_layer(value)}
        nodes = ast.walk(method.node) if method is not None else ()
        run = {ast.unparse(one.func) for one in nodes if isinstance(one, ast.Call)}
        return bool(layers) and layers <= run

    def _is_a_layer(self, value: ast.expr) -> bool:
        """Whether it is a layer, or one of a list of them, and not a call of it."""
        text = ast.unparse(value) if isinstance(value, (ast.Attribute, ast.Subscript)) else ""
        layer = rf"{self.me}\.({'|'.join(map(re.escape, self.layers))})((\.\w+|\[\w+\])*\[\w+\])?"
        return bool(text) and (re.fullmatch(layer, text) is not None or text in self.modules)

    def text(self, node: ast.AST) -> str:
        """Return the source of a part of it."""
        return self.function.text(node)

    def is_state(self, name: str) -> bool:
        """Whether a name is given the state that a recurrent layer returns beside its outputs."""
        return any(
            isinstance(one, ast.Assign)
            and isinstance(target, ast.Tuple)
            and isinstance(one.value, ast.Call)
            and ast.unparse(one.value.func) in self.recurrent
            and any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(target))
            and ast.unparse(target.elts[0]) != name
            for one in self.body
            for target in getattr(one, "targets", ())
        )

    def default_of(self, name: str) -> str:
        """Write the default of an argument that the call leaves out; "" where it does not."""
        given = self.function.node.args
        positional = [*given.posonlyargs, *given.args]
        defaults = dict(zip(reversed(positional), reversed(given.defaults), strict=False))
        defaults |= {one: code for one, code in zip(given.kwonlyargs, given.kw_defaults, strict=True) if code}
        left_out = {name for name, _ in self.call.argument_structures}
        return next(
            (self.text(code) for one, code in defaults.items() if one.arg == name and name not in left_out),
            "",
        )

    def is_tensor(self, name: str) -> bool:
        """Whether an argument holds tensors, that a replica has on its GPU."""
        return any(top_name(leaf.path) == name for leaf in self.call.tensor_arguments)

    def call_names(self) -> list[str]:
        """List the arguments that the call hands over, in their order."""
        return [name for name, _ in self.call.argument_structures]

    def names(self) -> set[str]:
        """List its arguments, and what it gives a value."""
        return self.function.arguments().union(*(stored(one) for one in self.function.node.body))

    def is_counted(self, name: str, statements: Sequence[ast.stmt]) -> bool:
        """Whether statements only ask for the length of an argument, which is known outside."""
        given = {one for one, _ in self.call.argument_structures}
        text = "\n".join(ast.unparse(one) for one in statements)
        counted = rf"\blen\({name}\)|\b{name}\.(size\(0\)|shape\[0\])"
        is_changed = any(name in stored(one) for one in self.function.node.body)
        return name in given and not is_changed and not re.search(rf"\b{name}\b", re.sub(counted, "", text))


@dataclass(frozen=True)
class Inner(Forward):
    """Another method, whose arguments no call of the program tells: those of a module in the model, say."""

    @property
    def body(self) -> list[ast.stmt]:
        """Its statements, without what it says of itself."""
        return self.function.node.body[ast.get_docstring(self.function.node) is not None :]

    def default_of(self, name: str) -> str:  # noqa: ARG002 - as a forward
        """Know of no argument that it is left out."""
        return ""

    def is_tensor(self, name: str) -> bool:  # noqa: ARG002 - as a forward
        """Take each argument for a tensor."""
        return True

    def is_counted(self, name: str, statements: Sequence[ast.stmt]) -> bool:  # noqa: ARG002 - as a forward
        """Know of no argument outside."""
        return False


def forward_of(evidence: Evidence, call: Call | None) -> Forward | None:
    """Read the model's forward; None where it is not the user's, or ends in several places."""
    found = read_method(evidence, call, function_at(forward_place(evidence)))
    if found is None:
        return None
    end = found.body[-1]
    others = [one for one in found.body[:-1] if leaves(one) and not found.is_passed(one)]
    return found if isinstance(end, ast.Return) and end.value is not None and not others else None


def read_method(
    evidence: Evidence, call: Call | None, function: Function | None, owner: str = ""
) -> Forward | None:
    """Read a method of the model, or of the module at a path of it, wherever it ends."""
    if function is None or call is None or not function.node.args.args or any(evidence.scan.wrappers):
        return None
    dot = f"{owner}." if owner else ""
    kinds = evidence.scan.module_types
    paths = {path.removeprefix(dot): kind for path, kind in kinds if path.startswith(dot)}
    names = [name.removeprefix(dot) for name in evidence.scan.parameters if name.startswith(dot)]
    inner = _code_inside(evidence, paths)
    tops = {path: kind for path, kind in paths.items() if path and "." not in path}
    losses = {path for path, kind in tops.items() if kind.endswith("Loss")}
    losses |= {path for path in inner if not any(one.startswith(f"{path}.") for one in names)}
    layers = {path.partition(".")[0] for path in paths if path} - losses
    layers |= {name.partition(".")[0] for name in names if name.count(".")}
    me = function.node.args.args[0].arg
    parameters = (attribute_of(name, me) for name in names)
    recurrent = (attribute_of(path, me) for path in paths if path and paths[path] == "RNN")
    kind = Inner if owner or function.node.name != "forward" else Forward
    modules = frozenset(attribute_of(path, me) for path in paths if path)
    own = frozenset(layers), frozenset(parameters), frozenset(recurrent), modules
    return kind(function, *own, call, inner, mixing=None if owner else _mixing(evidence, call))


def _mixing(evidence: Evidence, call: Call) -> Mixing | None:
    """Find where forward was seen to mix samples: in this call, or else in another that was looked at."""
    seen = [(one is call, probe.comparison.mixing) for probe, one in evidence.calls]
    found = [mixing for is_here, mixing in seen if is_here and mixing is not None]
    return next(iter([*found, *(mixing for _, mixing in seen if mixing is not None)]), None)


def _code_inside(evidence: Evidence, paths: Mapping[str, str]) -> dict[str, str]:
    """Find what runs in the modules that one holds, and in those that they hold, as far as it is the user's.

    One of them that has no parameters, a loss, a mixup, a pooling, runs outside as well as in a replica.
    """
    files = {name.rpartition(".")[2]: file for name, file in evidence.scan.classes if file}
    found: dict[str, str] = {}
    for path, kind in paths.items():
        method = method_of(kind, "forward", files[kind]) if path and kind in files else None
        if method is not None:
            top = path.partition(".")[0]
            found[top] = "\n".join([*([found[top]] if top in found else []), method.text(method.node)])
    return {name: text for name, text in found.items() if paths.get(name) in files}


def of_model(text: str, me: str, model: str = _MODEL) -> str:
    """Write forward's code as it stands outside, where the model has another name."""
    return re.sub(rf"\b{me}\b", model, text)


def free_names(statements: list[ast.stmt], forward: Forward, but: Sequence[ast.expr] = ()) -> list[str]:
    """List the names that statements read and do not write before, as far as forward has given them."""
    aside = {part for one in but for part in ast.walk(one)}
    known = forward.function.arguments() - {forward.me}
    for one in forward.body:
        known |= stored(one)
    written: set[str] = set()
    found: dict[str, None] = {}
    for statement in statements:
        loads = [
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id not in written
            and node not in aside
        ]
        found |= dict.fromkeys(name for name in sorted(loads, key=loads.index) if name in known)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            found |= dict.fromkeys({statement.target.id} - written)
        written |= stored(statement)
    inner = {
        one.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.comprehension)
        for one in ast.walk(node.target)
        if isinstance(one, ast.Name)
    }
    before = {name for one in forward.body if one not in statements for name in stored(one)}
    inner -= before | forward.function.arguments()
    return [
        name
        for name in found
        if name not in inner and (name in before or name in forward.function.arguments())
    ]


def _arguments_of(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(one.value for one in call.keywords)]


def leaves(statement: ast.stmt) -> bool:
    """Whether there is a `return` within a statement, such as an `if`."""
    is_one = isinstance(statement, ast.Return)
    return not is_one and any(isinstance(node, ast.Return) for node in ast.walk(statement))


def stored(statement: ast.stmt) -> set[str]:
    """List the names that a statement gives a value."""
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _is_filled(name: str, statement: ast.stmt) -> bool:
    """Whether a statement gives an element of what has this name a value."""
    parts = (one for one in ast.walk(statement) if isinstance(one, ast.Subscript))
    return any(isinstance(one.ctx, ast.Store) and ast.unparse(one.value) == name for one in parts)


def with_numbers(needed: list[str], kept: list[ast.stmt], forward: Forward) -> tuple[list[str], list[str]]:
    """Tell what is computed anew outside, being a number, from what forward returns."""
    copied: list[str] = []
    returned: dict[str, None] = {}
    todo, seen = list(needed), set[str]()
    while todo:
        name = todo.pop(0)
        if name in seen:
            continue
        seen.add(name)
        made = [one for one in kept if name in stored(one)]
        is_number = (
            len(made) == 1
            and isinstance(made[0], ast.Assign)
            and name not in free_names(made, forward)  # `x = x.reshape(-1, x.shape[-1])`
            and (re.search(_COMPUTED_ANEW, forward.text(made[0].value)) or not free_names(made, forward))
            and not forward.runs_layer(made[0])
            and not any(_is_filled(name, one) for one in kept)
        )
        if is_number:
            copied.insert(0, of_model(forward.text(made[0]), forward.me))
            todo += free_names(made, forward)
        elif made or forward.is_tensor(name):
            returned[name] = None
        elif default := forward.default_of(name):
            copied.insert(0, f"{name} = {default}")
    return list(dict.fromkeys(copied)), list(returned)
