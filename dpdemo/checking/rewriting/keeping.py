"""State that a module deep in the model follows the batch with: each GPU keeps its rows, to be joined.

What such a module would have to return, every forward around it would have to hand on. A dict on it, by GPU,
is shared by its replicas, and takes two lines of one class.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.calling import around_call
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.forwards import Forward, free_names, of_model, stored, with_numbers
from dpdemo.checking.rewriting.taking import for_each, reads_around, way_to, with_names
from dpdemo.checking.source import Function, attribute_of, names_in
from dpdemo.reports.check import Change

LATE = "# forward reads it as the last batch left it"


def kept_by_each_gpu(  # noqa: PLR0913, PLR0917 - what is moved, and from where
    forward: Forward,
    found: Sequence[ast.stmt],
    attributes: set[str],
    owners: Sequence[str],
    methods: Mapping[str, Function],
    names: str = "result",
) -> Repair | None:
    """Write a method that keeps what its statements read, by GPU, and those statements behind the call.

    Args:
        forward: the method that they stand in.
        found: the statements.
        attributes: what they write to, as `self.mean`.
        owners: the modules that run the method, by their paths.
        methods: the methods of those modules, by their names.
        names: what the program calls the result.

    """
    made = made_with(methods.get("__init__"), free_name(methods))
    found = _with_makers(forward, _with_readers(forward, found, attributes), attributes)
    cut = _cut(forward, found)
    if made is None or cut is None or any(map(forward.is_state, cut.needed)):
        return None  # gather joins on dimension 0, where a state has its layers
    me, name = forward.me, free_name(methods)
    kept = attribute_of(name, me)
    rows = ", ".join(cut.needed)
    taken = {*re.findall(r"\w+", names), *(name for name, _ in forward.call.argument_structures)}
    outside = {name: f"{name}_kept" for name in cut.needed if name in taken}
    joins = ", ".join(outside.get(name, name) for name in cut.needed)
    moved = [with_names(text, outside) for text in (*cut.copied, *cut.moved)]
    keeps = f"{kept}[{cut.needed[0]}.get_device()] = {rows}"
    own = forward.function.rewritten(cut.first, cut.last, "\n".join([*cut.between, *cut.made, keeps]))
    joined = f"nn.parallel.gather([{kept}[gpu] for gpu in sorted({kept})], model.output_device)"
    lines = [f"{joins} = {joined}", f"{kept}.clear()", *moved]
    if cut.is_inside:
        lines = [f"if {kept}:", *(f"    {line}" for text in lines for line in text.splitlines())]
    late = [LATE] if reads_around(forward, cut.tops, attributes)[1] else []
    call = around_call(forward.call, names, then=[*late, for_each(owners, "\n".join(lines), me)])
    return own._replace(also=(made, call))


def assigned_by_each_gpu(  # noqa: PLR0913 - what is kept, and where
    forward: Forward,
    statement: ast.stmt,
    owners: Sequence[str],
    methods: Mapping[str, Function],
    names: str = "result",
    *,
    is_rows: bool,
    readers: Sequence[tuple[Function, str]] = (),
) -> Repair | None:
    """Write a method that keeps what it assigns to `self` by GPU, and the line that joins it behind the call.

    Args:
        forward: the method.
        statement: the assignment.
        owners: the modules that run the method, by their paths.
        methods: the methods of those modules, by their names.
        names: what the program calls the result.
        is_rows: whether it is a tensor with a row for each sample, or a list of such, and no number.
        readers: other methods that read it in the same call, each with the code of its GPU.

    """
    made = made_with(methods.get("__init__"), free_name(methods))
    match statement:
        case ast.Assign(targets=[ast.Attribute(attr=name) as target], value=value):
            pass
        case _:
            return None
    name = f"{name}_now" if name in forward.names() else name
    if made is None or name in forward.names():
        return None
    kept = attribute_of(free_name(methods), forward.me)
    first = f"{name}[0]" if isinstance(value, (ast.List, ast.ListComp)) else name
    keeps = f"{kept}[{first}.get_device()] = {name}"
    if is_rows:
        own = _with_a_local(forward, statement, target, name, keeps, readers)
        joined = f"nn.parallel.gather([{kept}[gpu] for gpu in sorted({kept})], model.output_device)"
    else:
        own = forward.function.whole(statement, f"{name} = {forward.text(value)}\n{keeps}")
        joined = _reduced(forward, statement, forward.text(value), kept)
    if own is None:
        return None
    lines = [f"{ast.unparse(target)} = {joined}", f"{kept}.clear()"]
    call = around_call(forward.call, names, then=[for_each(owners, "\n".join(lines), forward.me)])
    return own._replace(also=(*own.also, made, call))


def _reduced(forward: Forward, statement: ast.stmt, text: str, kept: str) -> str:
    """Write one number of the GPUs': the sum where each has the sum of its samples, and else the mean."""
    parts = f"[{kept}[gpu].to(model.output_device) for gpu in sorted({kept})]"
    is_sum = _is_of_samples(forward, statement) and re.search(r"\.sum\(\)", text) and ".mean(" not in text
    return f"torch.stack({parts}).{'sum' if is_sum else 'mean'}()"


def _with_a_local(  # noqa: PLR0913, PLR0917 - what is kept, and by whom it is read
    forward: Forward,
    statement: ast.stmt,
    target: ast.Attribute,
    name: str,
    keeps: str,
    readers: Sequence[tuple[Function, str]],
) -> Repair | None:
    """Write a method with a name of its own for an attribute, which it keeps behind the assignment.

    Other methods of the call read what their GPU has kept. None where the method reads what an earlier call
    has left there, or gives it a value twice.
    """
    text = ast.unparse(target)
    uses = [one for one in ast.walk(forward.function.node) if isinstance(one, ast.Attribute)]
    uses = [one for one in uses if ast.unparse(one) == text]
    is_late = all(one is target or one.lineno > (statement.end_lineno or 0) for one in uses)
    if not is_late or sum(not isinstance(one.ctx, ast.Load) for one in uses) != 1:
        return None
    edits = Edits(forward.function.file)
    for one in uses:
        edits.replace(one, name)
    edits.behind(statement, keeps)
    for method, device in readers:
        me = method.node.args.args[0].arg
        is_of_tensor = device.endswith(".device")
        gpu = f"{device.removesuffix('.device')}.get_device()" if is_of_tensor else _OF_THREAD
        for part in ast.walk(method.node):
            if isinstance(part, ast.Attribute) and ast.unparse(part) == attribute_of(target.attr, me):
                edits.replace(part, f"{keeps.partition('[')[0]}[{gpu}]")
    return repair_of(edits.changes())


_OF_THREAD = "torch.cuda.current_device()"


def _is_of_samples(forward: Forward, statement: ast.stmt) -> bool:
    """Whether a statement reads an argument of the method, or what is made of one."""
    made = {name: one for one in forward.function.statements() for name in stored(one)}
    given = forward.function.arguments() - {forward.me}
    todo, seen = [statement], set[str]()
    while todo:
        names = names_in(todo.pop()) - seen
        seen |= names
        todo += [made[name] for name in names if name in made]
    return bool(seen & given)


@dataclass(frozen=True)
class _Cut:
    """Statements that follow each other in a block, those of them that move, and what these read."""

    tops: list[ast.stmt]
    first: ast.stmt
    last: ast.stmt
    between: list[str]
    made: list[str]
    needed: list[str]
    copied: list[str]
    moved: list[str]
    is_inside: bool


def _with_readers(forward: Forward, found: Sequence[ast.stmt], attributes: set[str]) -> list[ast.stmt]:
    """Add what stands between statements and reads what they write: it goes where they go."""
    first, last = found[0], found[-1]
    moved, given = list(found), set[str]()
    for one in forward.function.statements():
        is_between = first.lineno < one.lineno < last.lineno and isinstance(one, (ast.Assign, ast.AugAssign))
        if is_between and one not in moved:
            texts = {ast.unparse(part) for part in ast.walk(one) if isinstance(part, ast.Attribute)}
            if texts & attributes or names_in(one) & given:
                moved.append(one)
                given |= stored(one)
    return sorted(moved, key=lambda one: one.lineno)


_OVER_ROWS = r"\.(mean|sum|std|var|norm|max|min|amax|amin|median|logsumexp)\(\s*(\)|(dim=|axis=)?[\[(]?0\b)"
"""Code that makes one value of all rows."""


def _with_makers(forward: Forward, found: Sequence[ast.stmt], attributes: set[str]) -> list[ast.stmt]:
    """Add what makes values for statements of the state, or of all rows at once: no GPU has those by row."""
    moved = list(found)
    before = [one for one in forward.function.statements() if one.lineno < found[-1].lineno]
    for one in reversed([one for one in before if isinstance(one, ast.Assign) and one not in moved]):
        needed = {name for other in moved for name in names_in(other)}
        texts = {ast.unparse(part) for part in ast.walk(one) if isinstance(part, ast.Attribute)}
        is_of_all = bool(texts & attributes) or re.search(_OVER_ROWS, forward.text(one)) is not None
        inside = {id(part) for other in (*moved, one) for part in ast.walk(other)}
        read = (part for part in ast.walk(forward.function.node) if isinstance(part, ast.Name))
        elsewhere = {part.id for part in read if isinstance(part.ctx, ast.Load) and id(part) not in inside}
        if stored(one) & needed - elsewhere and is_of_all and not forward.runs_layer(one):
            moved.append(one)
    return sorted(moved, key=lambda one: one.lineno)


def _cut(forward: Forward, found: Sequence[ast.stmt]) -> _Cut | None:
    """Find the outermost block out of which the statements can be taken."""
    ways = [way_to(forward.body, one) for one in found]
    if not all(ways):
        return None
    for depth in range(min(map(len, ways))):
        around = {id(one) for way in ways for one in way[:depth]}
        if len(around) > depth or not all(isinstance(one, ast.If) for way in ways for one in way[:depth]):
            return None
        tops = sorted({way[depth] for way in ways}, key=lambda one: one.lineno)
        block = _block_of(forward.body if depth == 0 else ways[0][depth - 1], tops)
        cut = _cut_at(forward, block, tops, is_inside=depth > 0) if block else None
        if cut is not None:
            return cut
    return None


def _block_of(around: ast.stmt | list[ast.stmt], tops: list[ast.stmt]) -> list[ast.stmt]:
    blocks = [around] if isinstance(around, list) else [getattr(around, name) for name in ("body", "orelse")]
    return next((one for one in blocks if all(top in one for top in tops)), [])


def _cut_at(forward: Forward, block: list[ast.stmt], tops: list[ast.stmt], *, is_inside: bool) -> _Cut | None:
    if any(isinstance(part, ast.Return) for one in tops for part in ast.walk(one)):
        return None
    span = block[block.index(tops[0]) : block.index(tops[-1]) + 1]
    made: list[str] = []
    texts: list[str] = []
    reads: list[str] = []
    for one in tops:
        if not forward.runs_layer(one):
            texts.append(forward.function.own(one).after)
            continue
        value = value_of(one)
        if value is None or len(tops) > 1:
            return None
        made, reads = [f"value = {forward.text(value)}"], ["value"]
        texts.append(forward.function.own(one, (value, "value")).after)
    behind = [one for one in forward.function.statements() if one.lineno > (tops[-1].end_lineno or 0)]
    given = {name for one in tops for name in stored(one)}
    rest = [one for one in span if one not in tops]
    if given & set(free_names([*rest, *behind], forward)) or (made and "value" in forward.names()):
        return None
    before = [one for one in forward.function.statements() if not any(one in ast.walk(top) for top in tops)]
    inner = {name for one in block if one not in tops for name in stored(one)}  # not those of another branch
    before = [one for one in before if one in block or not stored(one) & inner]
    copied, needed = ([], []) if made else with_numbers(free_names(tops, forward), before, forward)
    needed = [*reads, *needed]
    if not needed:
        return None
    between = [forward.function.own(one).after for one in rest]
    return _Cut(tops, span[0], span[-1], between, made, needed, _of_self(copied, forward), texts, is_inside)


def _of_self(copied: list[str], forward: Forward) -> list[str]:
    """Take back that lines are written for the outside: they are written for each module later."""
    return [of_model(line, r"model\.module", forward.me) for line in copied]


def value_of(statement: ast.stmt) -> ast.expr | None:
    """Find the one expression whose value a statement stores: what it assigns, or hands to a method."""
    match statement:
        case ast.Assign(value=value) | ast.Expr(ast.Call(args=[value], keywords=[])):
            return value
    return None


def free_name(methods: Mapping[str, Function]) -> str:
    """Choose a name for the dict that no method of the class uses."""
    text = "\n".join(one.text(one.node) for one in methods.values())
    names = ("kept", "kept_by_gpu", "rows_by_gpu")
    return next((name for name in names if not re.search(rf"\.{name}\b", text)), "rows_of_each_gpu")


def made_with(init: Function | None, name: str) -> Change | None:
    """Write the line of `__init__` that calls the base class's, and the dict behind it."""
    for one in init.statements() if init else ():
        if init and isinstance(one, ast.Expr) and re.search(r"__init__\(.*\)$", init.text(one)):
            me = init.node.args.args[0].arg
            line = f"{attribute_of(name, me)} = {{}}   # of each GPU, until the call is over"
            edits = Edits(init.file)
            edits.behind(one, line)
            return edits.changes()[0]
    return None


def buffer_in(init: Function | None, name: str) -> Change | None:
    """Write the line of `__init__` that sets an attribute, and one that makes a buffer of it."""
    for one in init.statements() if init else ():
        match one:
            case ast.Assign(targets=[ast.Attribute(attr=known)], value=value) if init and known == name:
                text = f'register_buffer("{name}", {init.text(value)}, persistent=False)'
                return init.whole(one, f"{init.node.args.args[0].arg}.{text}").as_change()
    return None
