"""State that forward changes, written where it lasts: on the model itself, around the call."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dpdemo.checking.evidence import Call, Evidence, Probe, StateChange
from dpdemo.checking.looking import STATISTICS, call_of, forward_place
from dpdemo.checking.methods import functions_like, methods_in, without_setup
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.averages import layers_written
from dpdemo.checking.rewriting.bycalls import call_outside
from dpdemo.checking.rewriting.carrying import carried
from dpdemo.checking.rewriting.forwards import (
    Forward,
    forward_of,
    read_method,
)
from dpdemo.checking.rewriting.keeping import assigned_by_each_gpu, buffer_in, kept_by_each_gpu
from dpdemo.checking.rewriting.loops import kept_in_a_loop
from dpdemo.checking.rewriting.returning import after_call, names_of, through_a_name
from dpdemo.checking.rewriting.taking import reads_around, taken_out
from dpdemo.checking.source import Function, attribute_of, function_at
from dpdemo.checking.writes import writes_to
from dpdemo.reports.check import Place


def change_outside(
    change: StateChange, evidence: Evidence, call: Call | None, others: Sequence[StateChange] = ()
) -> Repair | None:
    """Write forward without the statements that change state, and the call with them around it.

    Args:
        change: what is changed, and the statement that does so.
        evidence: what the check saw.
        call: a call, whose arguments the line outside has.
        others: what else forward changes, and that goes with it.

    Returns:
        None where no such lines would do the same.

    """
    forward = forward_of(evidence, call)
    if forward is not None and change.kind == "parameter" and not change.written:
        found = _writing_numbers(forward)
        if not found:
            found = list(_calls_writing_numbers(forward, change, evidence))
            forward = _quiet(forward, found)
        return _about_layers(forward, found, is_guarded=False) or _of_a_part(change, evidence, call, others)
    own = carried(change, evidence, call) if change.kind == "attribute" else None
    home = home_of(change, evidence, others) if own is None else None
    if home is not None and home.owner and not _runs_itself(home, change):
        own = call_outside(change, evidence, call)  # a method of a module, which the model's forward calls
    if home is not None and home.owner and _is_filled_twice(change):
        home = None  # the part runs several times in a call, and a GPU would keep the last
    if own is None and home is not None and call is not None:
        same = [one for one in others if one is not change and one.owner == change.owner]
        own = _moved(home, [change, *same], evidence, call) if same else None
        own = own or _moved(home, [change], evidence, call)
    return own or call_outside(change, evidence, call)


def kept_outside(
    change: StateChange, evidence: Evidence, call: Call | None, others: Sequence[StateChange]
) -> Repair | None:
    """Write the line that leaves a number, or rows, on `self`, as one that keeps each GPU's for outside."""
    home = home_of(change, evidence, [one for one in others if one.kind == "attribute"])
    is_number = re.fullmatch(r"-?[\d.]+(e[-+]\d+)?", change.single) is not None
    is_rows = call is not None and change.single.startswith(f"a tensor of shape ({call.rows},")
    if home is None or not (is_number or is_rows):
        return None
    last = change.path.rpartition(".")[2]
    for name, one in home.methods.items():
        found = writes_to(one, last) if name != "__init__" else []
        method = read_method(evidence, call, one, home.owner) if len(found) == 1 else None
        if method is not None:
            whole = forward_of(evidence, call)
            names = names_of(whole) if whole and not home.owner else "result"
            return assigned_by_each_gpu(method, found[0], home.owners, home.methods, names, is_rows=is_rows)
    return None


def mode_outside(change: StateChange, evidence: Evidence, call: Call | None) -> Repair | None:
    """Write forward without the lines that put a module in another mode, and those before the call."""
    whole = forward_of(evidence, call)
    path = change.path.removesuffix("training").removesuffix(".")
    if whole is None:
        return None
    module = attribute_of(path, whole.me) if path else whole.me
    found = [
        one
        for one in whole.function.statements()
        if isinstance(one, ast.Expr) and re.match(rf"{re.escape(module)}\.(eval|train)\(", ast.unparse(one))
    ]
    return taken_out(whole, found, set(), [""], names_of(whole), is_first=True)


def made_before(change: StateChange, evidence: Evidence, call: Call) -> Repair | None:
    """Write the line that wraps a model whose forward makes a part of it, with a plain call before it."""
    wraps = "model = nn.DataParallel(model)"
    once = f"{call_of(call)}   # once, plainly: then the model has `{change.path}`"
    place = change.place or forward_place(evidence)
    return Repair(place, wraps, f"{once}\n{wraps}") if place else None


def line_outside(place: Place | None, evidence: Evidence, call: Call | None) -> Repair | None:
    """Write forward's statement around a line as it is written after the call, if forward can do without."""
    forward = forward_of(evidence, call)
    if forward is None or place is None:
        return None
    found = [one for one in forward.body if one.lineno <= place.line <= (one.end_lineno or 0)]
    return _about_layers(forward, found or _calling(forward.function, [place.function]), is_guarded=True)


def _about_layers(forward: Forward, found: Sequence[ast.stmt], *, is_guarded: bool) -> Repair | None:
    """Write forward without statements that change parameters, which their layers read."""
    layers = layers_written(forward, found)
    own = taken_out(forward, found, layers, [""], names_of(forward), is_guarded=is_guarded)
    return own or after_call(forward, found, layers, is_guarded=is_guarded)


def _quiet(forward: Forward, calls: Iterable[ast.stmt]) -> Forward:
    """Take calls that change parameters for none of a layer, though they name one."""
    return replace(forward, quiet=frozenset(ast.unparse(one.value.func) for one in calls))  # type: ignore[attr-defined] # calls


def _of_a_part(
    change: StateChange, evidence: Evidence, call: Call | None, others: Sequence[StateChange]
) -> Repair | None:
    """Write the forward of a module around a parameter without what changes the parameter's numbers."""
    kinds = dict(evidence.scan.module_types)
    files = {name.rpartition(".")[2]: file for name, file in evidence.scan.classes if file}
    for dot in reversed(list(re.finditer(r"\.", change.path))):
        owner, inner = change.path[: dot.start()], change.path[dot.start() :]
        kind = kinds.get(owner, "")
        methods = methods_in(files[kind], kind, 0) if kind in files else {}
        forward = read_method(evidence, call, methods.get("forward"), owner)
        if forward is None:
            continue
        writing = {name for name, one in methods.items() if name != "forward" and _writes_numbers(one)}
        found = _writing_numbers(forward)
        if not found:
            found = _calling(forward.function, writing)
            forward = _quiet(forward, found)
        paths = [one.path for one in (change, *others) if one.path.endswith(inner)]
        owners = sorted({path.removesuffix(inner) for path in paths} & {*kinds})
        owners = [one for one in owners if kinds[one] == kind]
        steps = [one.start() for one in re.finditer(r"\.", f"{inner}.")]
        attributes = {attribute_of(inner[1:step], forward.me) for step in steps[1:]}  # a layer reads them too
        if found:
            return moved_out(forward, None, found, attributes, owners, methods, is_guarded=False)
    return None


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
    return Home(methods, tuple(sorted(owners))) if "forward" in methods else None


def _moved(  # noqa: PLR0911 - one way after another
    home: Home, changes: Sequence[StateChange], evidence: Evidence, call: Call
) -> Repair | None:
    """Write a class's forward without what changes state, or else the method that does so by itself."""
    whole = forward_of(evidence, call)
    names = names_of(whole) if whole else "result"
    paths = [one.path.removeprefix(f"{one.owner}." if one.owner else "") for one in changes]
    in_forward = home.methods["forward"]
    found = [_in(in_forward, home, path) for path in paths]
    if all(found):
        chosen = in_forward
    else:
        writing = [
            one
            for name, one in home.methods.items()
            if name != "__init__" and all(writes_to(one, path) for path in paths)
        ]
        if len(writing) != 1:
            return None
        (chosen,) = writing
        found = [writes_to(chosen, path) for path in paths]
    forward = read_method(evidence, call, chosen, home.owner)
    if forward is None:
        return None
    statements = sorted({one for some in found for one in some}, key=lambda one: one.lineno)
    attributes = {attribute_of(path, forward.me) for path in paths}
    times = _times(changes[0], statements) if home.owner and len(changes) == 1 else 1
    is_made = any(one.kind == "container" or one.before in ("None", "absent") for one in changes)
    is_guarded = all(one.kind != "parameter" for one in changes)
    for path in paths:  # a layer that is called reads its parameters
        attributes |= {attribute_of(path[: dot.start()], forward.me) for dot in re.finditer(r"\.", path)}
    early, late = reads_around(forward, statements, attributes)
    alone = taken_out(forward, statements, attributes, home.owners, names, times=times, is_guarded=is_guarded)
    if alone is not None:
        return alone
    if is_made and late:
        if not all(_may_be_rows(one, call) for one in changes):
            return None
        root = whole if not home.owner and chosen is in_forward else None
        return through_a_name(root, statements, attributes) if root else None
    if not _can_be_read(forward, statements, changes, [*early, *late]):
        return None
    root = whole if not home.owner and chosen is in_forward else None
    own = moved_out(forward, root, statements, attributes, home.owners, home.methods, is_guarded=is_guarded)
    plain = [path for path, one in zip(paths, changes, strict=True) if _is_plain_tensor(one)]
    if own is None or not plain or not (early or late):
        return own
    made = [buffer_in(home.methods.get("__init__"), path) for path in plain]
    buffers = [one for one in made if one is not None]
    *inside, last = own.also
    return own._replace(also=(*inside, *buffers, last)) if len(buffers) == len(made) else None


def _is_filled_twice(change: StateChange) -> bool:
    """Whether a call adds several entries to a list or deque."""
    sizes = [re.fullmatch(r"an? (?:list|deque) of (\d+)", text) for text in (change.before, change.single)]
    before, single = (int(one[1]) if one else 0 for one in sizes)
    return change.kind == "container" and single > before + 1


def _may_be_rows(change: StateChange, call: Call | None) -> bool:
    """Whether gather would join what is stored: no tensor, or one with a row for each sample."""
    is_tensor = change.single.startswith("a tensor of shape (")
    return not is_tensor or (
        call is not None and change.single.startswith(f"a tensor of shape ({call.rows},")
    )


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


def _runs_itself(home: Home, change: StateChange) -> bool:
    """Whether a module's own forward changes a piece of its state."""
    path = change.path.removeprefix(f"{change.owner}." if change.owner else "")
    return bool(_in(home.methods["forward"], home, path))


def _in(forward: Function, home: Home, path: str) -> list[ast.stmt]:
    """Find the statements of forward that write to an attribute, or are a call of a method that does."""
    here = writes_to(forward, path)
    others = {name: one for name, one in home.methods.items() if name not in ("__init__", "forward")}
    inside = {name for name, one in others.items() if writes_to(one, path)}
    while True:
        more = {name for name, one in others.items() if _calling(one, inside)} - inside
        if not more:
            return [*here, *_calling(forward, inside)]
        inside |= more


def _times(change: StateChange, statements: Sequence[ast.stmt]) -> int:
    """Count how often a call of the model ran `self.n += 1`, by what became of it."""
    match statements:
        case [ast.AugAssign(op=ast.Add(), value=ast.Constant(int() as step))] if step > 0:
            numbers = [one for one in (change.before, change.single) if re.fullmatch(r"-?\d+", one)]
            if len(numbers) == 2:
                return max((int(numbers[1]) - int(numbers[0])) // step, 1)
    return 1


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


def reads_of(forward: Place | None, name: str) -> bool:
    """Whether forward reads an attribute of the model that it may have set in an earlier call."""
    function = function_at(forward)
    nodes = ast.walk(function.node) if function else ()
    return any(
        isinstance(one, ast.Attribute) and one.attr == name and isinstance(one.ctx, ast.Load) for one in nodes
    )


def _writing_numbers(forward: Forward) -> list[ast.stmt]:
    """List forward's statements that write to a parameter's numbers by another name: a loop's, say."""
    lines = (one for one in forward.function.statements() if isinstance(one, ast.Expr))
    return [one for one in lines if re.search(r"\.data(\[.*\])?\.[a-z]\w*_\(", forward.text(one))]


def _calls_writing_numbers(forward: Forward, change: StateChange, evidence: Evidence) -> Iterator[ast.stmt]:
    """List forward's calls of a method that changes weights in place, of a module around the parameter."""
    kinds = dict(evidence.scan.module_types)
    files = {name.rpartition(".")[2]: file for name, file in evidence.scan.classes if file}
    for statement in forward.function.statements():
        match statement:
            case ast.Expr(ast.Call(func=ast.Attribute(value=value, attr=name))):
                path = ast.unparse(value).removeprefix(forward.me).removeprefix(".")
                kind = kinds.get(path, "")
                is_around = not path or change.path.startswith(f"{path}.")
                methods = methods_in(files[kind], kind, 0) if kind in files and is_around else {}
                if name in methods and _writes_numbers(methods[name]):
                    yield statement


def _writes_numbers(function: Function) -> bool:
    """Whether a method changes weights in place, without gradients."""
    text = ast.unparse(function.node)  # with its decorators
    return re.search(r"no_grad|\.data\b", text) is not None and re.search(_IN_PLACE, text) is not None


_IN_PLACE = re.compile(
    r"\.(weight|bias|data)(\[.*\])?\.[a-z]\w*_\(|\.data = "
    r"|\b(?P<name>\w+) = [^\n]*\.(weight|bias|data)\n.*\b(?P=name)(\[[^\n]*\])?\.[a-z]\w*_\(",
    re.DOTALL,
)
"""Code that changes weights where they are, by a name that they were given too."""


def _calling(function: Function, methods: Iterable[str]) -> list[ast.stmt]:
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


def changes_of(evidence: Evidence, *kinds: str) -> Iterator[tuple[Probe, StateChange]]:
    """List what forward changed of these kinds of state, in each probe that came to run it."""
    for probe in evidence.probes:
        if not _ran(probe):
            continue
        for change in probe.changes:
            if change.kind in kinds:
                yield probe, change


def _ran(probe: Probe) -> bool:
    """Return whether any replica came to run forward: a call that failed before says nothing about state."""
    call = probe.call
    return call is not None and any(replica.output is not None or replica.raised for replica in call.replicas)


def is_of_data(change: StateChange) -> bool:
    """Return whether forward gives the same parameter other numbers: `self.w.data = ...` and its like."""
    is_lost = change.single_changed and not change.parallel_changed
    last = change.path.rpartition(".")[2]
    is_assigned = re.match(rf"[\w.\[\]]+\.{last}\s*=(?!=)", change.written) is not None
    return is_lost and not is_assigned and change.before == change.single


def statement_outside(change: StateChange) -> str:
    """Write the line that changes state as it is written after the call, outside of forward."""
    module = attribute_of(change.owner, "model.module") if change.owner else "model.module"
    return re.sub(r"\bself\b", module, change.written)


def lost_in(probe: Probe) -> list[StateChange]:
    """List what forward changes and replicas lose: it goes outside together."""
    return [
        one
        for one in probe.changes
        if not one.harmless
        and (
            (one.kind == "attribute" and one.single_changed and not one.parallel_changed)
            or (one.kind == "container" and one.parallel_changed)
            or (one.kind == "buffer" and is_off(one))
        )
    ]


def is_off(change: StateChange) -> bool:
    """Return whether a buffer, but for BatchNorm's statistics, ends otherwise than on one GPU."""
    if change.path.rpartition(".")[2] in STATISTICS or change.same:
        return False
    return change.single_changed or change.parallel_changed
