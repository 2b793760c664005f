"""The statements of a method that change state, taken out of it and written around the call."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dpdemo.checking.evidence import Call, Evidence, StateChange
from dpdemo.checking.looking import forward_place
from dpdemo.checking.methods import functions_like, methods_in, without_setup
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.before import updated_before
from dpdemo.checking.rewriting.forwards import (
    Forward,
    forward_of,
    read_method,
)
from dpdemo.checking.rewriting.keeping import buffer_in, kept_by_each_gpu
from dpdemo.checking.rewriting.loops import kept_in_a_loop
from dpdemo.checking.rewriting.returning import after_call, names_of, through_a_name
from dpdemo.checking.rewriting.taking import reads_around, taken_out
from dpdemo.checking.source import Function, attribute_of
from dpdemo.checking.writes import writes_to
from dpdemo.reports.check import Place


@dataclass(frozen=True)
class Home:
    """The class whose methods change a piece of state, and the modules of it in which they do."""

    methods: Mapping[str, Function]
    owners: tuple[str, ...]

    @property
    def owner(self) -> str:
        """The first of the modules; "" is the model itself."""
        return self.owners[0]


def home_of(change: StateChange, evidence: Evidence, others: Sequence[StateChange]) -> Home | None:
    """Find the class whose methods change a piece of state; None where it is not the user's."""
    kinds = dict(evidence.scan.module_types)
    forward = forward_place(evidence)
    place = change.place or forward if change.owner else forward
    if change.owner not in kinds:
        return None
    files = {name.rpartition(".")[2]: file for name, file in evidence.scan.classes if file}
    if place is None and kinds[change.owner] in files:
        place = Place(files[kinds[change.owner]], 0)
    if place is None:
        return None
    last = change.path.rpartition(".")[2]
    alike = [one for one in others if one.module_type == change.module_type and one.owner != change.owner]
    owners = [change.owner, *(one.owner for one in alike if one.path.rpartition(".")[2] == last)]
    known = methods_in(place.file, kinds[change.owner], place.line)
    methods = {one.node.name: one for one in without_setup(known.values())}
    return Home(methods, tuple(sorted(owners))) if methods else None


def runs_itself(home: Home, change: StateChange) -> bool:
    """Whether a module's own forward changes a piece of its state."""
    path = change.path.removeprefix(f"{change.owner}." if change.owner else "")
    forward = home.methods.get("forward")
    return forward is not None and bool(_in(forward, home, path))


def moved(home: Home, changes: Sequence[StateChange], evidence: Evidence, call: Call) -> Repair | None:
    """Write a class's forward without what changes state, or else the method that does so by itself."""
    paths = [one.path.removeprefix(f"{one.owner}." if one.owner else "") for one in changes]
    chosen, statements = _writing(home, paths)
    forward = read_method(evidence, call, chosen, home.owner)
    if forward is None:
        return None
    whole = forward_of(evidence, call)
    root = whole if not home.owner and chosen is home.methods.get("forward") else None
    attributes = {attribute_of(path, forward.me) for path in paths}
    for path in paths:  # a layer that is called reads its parameters
        attributes |= {attribute_of(path[: dot.start()], forward.me) for dot in re.finditer(r"\.", path)}
    alone = _by_themselves(forward, whole, statements, attributes, home, changes)
    early, late = reads_around(forward, statements, attributes)
    is_made = any(one.kind == "container" or one.before in ("None", "absent") for one in changes)
    if alone is not None:
        return alone
    if is_made and late:
        is_joined = root is not None and all(_may_be_rows(one, call) for one in changes)
        return through_a_name(root, statements, attributes) if root and is_joined else None
    if not _can_be_read(forward, statements, changes, [*early, *late]):
        return None
    is_guarded = all(one.kind != "parameter" for one in changes)
    own = _by_its_caller(forward.function, home, paths, evidence, call) or moved_out(
        forward, root, statements, attributes, home.owners, home.methods, is_guarded=is_guarded
    )
    plain = [path for path, one in zip(paths, changes, strict=True) if _is_plain_tensor(one)]
    if own is None or not plain or not (early or late):
        return own
    made = [buffer_in(home.methods.get("__init__"), path) for path in plain]
    buffers = [one for one in made if one is not None]
    *inside, last = own.also
    return own._replace(also=(*inside, *buffers, last)) if len(buffers) == len(made) else None


def _writing(home: Home, paths: Sequence[str]) -> tuple[Function | None, list[ast.stmt]]:
    """Find forward's statements that change state, or the only other method that does, and its statements."""
    forward = home.methods.get("forward")
    found = [_in(forward, home, path) for path in paths] if forward is not None else []
    if forward is None or not all(found):
        known = [one for name, one in home.methods.items() if name != "__init__"]
        methods = [one for one in known if all(writes_to(one, path) for path in paths)]
        if len(methods) != 1:
            return None, []
        (forward,) = methods
        found = [writes_to(forward, path) for path in paths]
    return forward, sorted({one for some in found for one in some}, key=lambda one: one.lineno)


def _by_its_caller(
    method: Function, home: Home, paths: Sequence[str], evidence: Evidence, call: Call
) -> Repair | None:
    """Write the method of a module around that calls one which changes state, and that call behind the call.

    Each GPU keeps what it would have called it with.
    """
    kinds = dict(evidence.scan.module_types)
    files = {name.rpartition(".")[2]: file for name, file in evidence.scan.classes if file}
    around = [
        *([""] if home.owner else []),
        *(home.owner[: dot.start()] for dot in re.finditer(r"\.", home.owner)),
    ]
    for path in reversed(around) if method.node.name != "forward" and len(home.owners) == 1 else ():
        inner = home.owner.removeprefix(f"{path}." if path else "")
        kind = kinds.get(path, "")
        first = evidence.scan.forward.line if evidence.scan.forward is not None and not path else 0
        methods = methods_in(files[kind], kind, first) if kind in files else {}
        for one in methods.values():
            forward = read_method(evidence, call, one, path) if one.node.name != "__init__" else None
            found = calling(one, [f"{inner}.{method.node.name}"]) if forward is not None else []
            if forward is not None and found:
                steps = {f"{inner}.{end}" for end in paths} | {inner}
                attributes = {attribute_of(step, forward.me) for step in steps}
                keeping = replace(forward, layers=forward.layers - {inner.partition(".")[0]})
                return kept_by_each_gpu(keeping, found, attributes, [path], methods)
    return None


def _by_themselves(  # noqa: PLR0913, PLR0917 - what is moved, and from where
    forward: Forward,
    whole: Forward | None,
    statements: Sequence[ast.stmt],
    attributes: set[str],
    home: Home,
    changes: Sequence[StateChange],
) -> Repair | None:
    """Write statements around the call that need nothing of what a method computes."""
    names = names_of(whole) if whole else "result"
    times = _times(changes[0], statements) if home.owner and len(changes) == 1 else 1
    is_guarded = all(one.kind != "parameter" for one in changes)
    own = taken_out(forward, statements, attributes, home.owners, names, times=times, is_guarded=is_guarded)
    is_part = home.owner and len(home.owners) == 1 and forward.function is home.methods.get("forward")
    if own is None and whole is not None and is_part:
        return updated_before(forward, whole, statements, attributes, home.owner)
    return own


def moved_out(  # noqa: PLR0913, PLR0917 - what is moved, and from where
    forward: Forward,
    whole: Forward | None,
    statements: Sequence[ast.stmt],
    attributes: set[str],
    owners: Sequence[str],
    methods: Mapping[str, Function],
    *,
    is_guarded: bool = True,
) -> Repair | None:
    """Write a method without statements, and the call with them around it.

    Args:
        forward: the method.
        whole: the model's forward, if that is the method, and ends in one place.
        statements: what is moved.
        attributes: what it writes to, as it is written there.
        owners: the modules that run the method, by their paths.
        methods: the methods of those modules, by their names.
        is_guarded: whether the statements need no `torch.no_grad()` of their own.

    """
    names = names_of(whole or forward) if not owners[0] else "result"
    own = taken_out(forward, statements, attributes, owners, names, is_guarded=is_guarded)
    own = own or (after_call(whole, statements, attributes, is_guarded=is_guarded) if whole else None)
    own = own or kept_by_each_gpu(forward, statements, attributes, owners, methods, names)
    return own or kept_in_a_loop(forward, statements, owners, methods, names)


def _in(forward: Function, home: Home, path: str) -> list[ast.stmt]:
    """Find the statements of forward that write to an attribute, or are a call of a method that does."""
    here = writes_to(forward, path)
    others = {name: one for name, one in home.methods.items() if name not in ("__init__", "forward")}
    inside = {name for name, one in others.items() if writes_to(one, path)}
    while True:
        more = {name for name, one in others.items() if calling(one, inside)} - inside
        if not more:
            return [*here, *calling(forward, inside)]
        inside |= more


def _times(change: StateChange, statements: Sequence[ast.stmt]) -> int:
    """Count how often a call of the model ran `self.n += 1`, by what became of it."""
    match statements:
        case [ast.AugAssign(op=ast.Add(), value=ast.Constant(int() as step))] if step > 0:
            numbers = [one for one in (change.before, change.single) if re.fullmatch(r"-?\d+", one)]
            if len(numbers) == 2:
                return max((int(numbers[1]) - int(numbers[0])) // step, 1)
    return 1


def _may_be_rows(change: StateChange, call: Call | None) -> bool:
    """Whether gather would join what is stored: no tensor, or one with a row for each sample."""
    is_tensor = change.single.startswith("a tensor of shape (")
    return not is_tensor or (
        call is not None and change.single.startswith(f"a tensor of shape ({call.rows},")
    )


def _is_plain_tensor(change: StateChange) -> bool:
    """Whether replicas would find it on the first GPU, being neither a parameter nor a buffer."""
    return change.kind == "attribute" and change.single.startswith("a tensor")


def _can_be_read(
    forward: Forward, statements: Sequence[ast.stmt], changes: Sequence[StateChange], reads: list[int]
) -> bool:
    """Whether replicas can read what is written outside: numbers, but no GPU's tensors in a list or dict."""
    is_of_numbers = all(
        re.search(r"\.item\(\)|\.tolist\(\)|\bfloat\(|\blen\(", forward.text(one)) for one in statements
    )
    if not reads or is_of_numbers or not any(one.kind == "container" for one in changes):
        return True
    methods = [forward.function, *functions_like(forward.function)]
    lines = [one.text(part) for one in methods for part in one.statements()]
    written = [one.written for one in changes if one.kind == "container"]
    return all(_is_on_the_cpu(one, lines) for one in written)


def _is_on_the_cpu(written: str, lines: Sequence[str]) -> bool:
    """Whether a line keeps what it, or the line that makes a name in it, has put on the CPU."""
    if ".cpu()" in written:
        return True
    names = set(re.findall(r"(?<![\w.])[a-z]\w*", written))
    return any(re.match(rf"({'|'.join(names)}) = .*\.cpu\(\)$", one, re.DOTALL) for one in lines if names)


def calling(function: Function, methods: Iterable[str]) -> list[ast.stmt]:
    """List the statements of a method that are nothing but a call of one of these."""
    me = function.node.args.args[0].arg if function.node.args.args else ""
    called = {attribute_of(one, me) for one in methods}
    return [
        one
        for one in function.statements()
        if isinstance(one, ast.Expr)
        and isinstance(one.value, ast.Call)
        and ast.unparse(one.value.func) in called
    ]
