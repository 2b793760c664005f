"""Results that differ from replica to replica, which gather cannot join: DP404 to DP406."""

import ast
import re
from collections.abc import Iterator, Sequence

from dpdemo.checking.evidence import Call, Evidence, Probe
from dpdemo.checking.looking import (
    forward_place,
    from_the_start,
    gathered_calls,
    is_batch,
    listed,
    per_sample,
    result_at,
    result_place,
    shapes_of,
)
from dpdemo.checking.methods import functions_like, method_of
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.padding import Ragged, padded_before_gather
from dpdemo.checking.rewriting.results import part_at, returned
from dpdemo.checking.rewriting.sizes import as_long_as_given, size_handed_over
from dpdemo.checking.rewriting.squeezed import batch_kept, has_a_lone_row
from dpdemo.checking.source import Function, function_at, names_in


@rule("DP404", "none-output", "error")
def none_output(evidence: Evidence) -> Iterator[Found]:
    """A part of the result is None in some replicas only.

    What happens: None in replica 0 drops the other replicas' data without a word; None in another one:
        `'NoneType' object has no attribute 'device'`.
    Why: gather looks at replica 0's result to decide what it has before it.
    Before: return y, (aux if aux.any() else None)
    After: return y, aux
    Seen by: the results of all replicas, before gather.
    References: torch/nn/parallel/scatter_gather.py, gather_map
    """
    for probe, call in gathered_calls(evidence):
        nones = [
            {leaf.path for leaf in replica.output or () if leaf.type == "NoneType"}
            for replica in call.replicas
        ]
        for path in sorted(set().union(*nones)):
            where = [index for index, paths in enumerate(nones) if path in paths]
            if len(where) < len(nones):
                lost = ": what the others give is dropped" if where[0] == 0 else ""
                own = returned(result_place(evidence, call), path, _without_none)
                own = own or _given_in_all(evidence, path)
                yield Found(
                    path,
                    f"{result_at(path)} is None in replica {where[0]} and not in all{lost}",
                    forward_place(evidence),
                    probe,
                    repair=own,
                )


def _given_in_all(evidence: Evidence, path: str) -> Repair | None:
    """Write the `if` that alone gives a part of the result a value without its condition.

    Or the one that returns None in the module, or the method, whose result the part is, as one that does not.
    """
    part = part_at(result_place(evidence), path)
    if part is not None and isinstance(part.node, ast.Call):
        return _given_by(part.node, evidence)
    if part is None or part.path != path or not isinstance(part.node, ast.Name):
        return None
    for statement in part.function.statements():
        if isinstance(statement, ast.If) and not statement.orelse:
            written = [
                target for one in statement.body if isinstance(one, ast.Assign) for target in one.targets
            ]
            if any(isinstance(one, ast.Name) and one.id == part.node.id for one in written):
                return part.function.whole(statement, part.function.block(statement.body, statement))
    return None


def _given_by(call: ast.Call, evidence: Evidence) -> Repair | None:
    """Write the `if` that only returns None, in what is called, without effect."""
    name = ast.unparse(call.func).partition(".")[2]
    kinds, forward = dict(evidence.scan.module_types), function_at(forward_place(evidence))
    files = {kind.rpartition(".")[2]: file for kind, file in evidence.scan.classes if file}
    kind = kinds.get(name, "")
    own = method_of(kind, "forward", files[kind]) if kind in files else None
    methods = [one for one in functions_like(forward) if one.node.name == name] if forward else []
    for function in [own] if own else methods:
        for statement in function.statements():
            match statement:
                case ast.If(body=[ast.Return(value=None | ast.Constant(None))], orelse=[]):
                    return function.whole(statement, "pass   # every replica goes on")
    return None


def _without_none(value: ast.expr, _: str) -> str | None:
    """Write `a if condition else None` without its condition."""
    if not isinstance(value, ast.IfExp):
        return None
    parts = [one for one in (value.body, value.orelse) if ast.unparse(one) != "None"]
    return ast.unparse(parts[0]) if len(parts) == 1 else None


@rule("DP405", "structure-differs", "error", unless=("DP317",))
def structure_differs(evidence: Evidence) -> Iterator[Found]:
    """Replicas return results of different structure.

    What happens: `All dicts must have the same number of keys`, KeyError, `zip() argument 2 is longer`, or
        `Expected all input tensors to have the same number of dimensions`.
    Why: gather joins part by part.
    Before: return {"y": y, **({"aux": aux} if found else {})}
    After: return {"y": y, "aux": aux}
    Seen by: the structure of each replica's result, before gather.
    References: open-mmlab/mmdetection#2303
    """
    for probe, call in gathered_calls(evidence):
        first = call.replicas[0].structure
        for replica in call.replicas[1:]:
            if replica.structure == first or per_sample(probe, call) is not None:
                continue
            if "None" in replica.structure + first:
                continue  # that is DP404
            own = _made_in_all(evidence, call) or _to_the_end(evidence) or _stacked(evidence, call)
            own = own or (batch_kept(evidence) if has_a_lone_row(probe) else None)
            yield Found(
                "structure",
                f"replica 0 returns {first}, replica {replica.index} {replica.structure}",
                forward_place(evidence),
                probe,
                repair=own,
            )
            break


def _made_in_all(evidence: Evidence, call: Call) -> Repair | None:
    """Write the `if` that makes a key of the result, or the display that holds it, without its condition."""
    paths = [{leaf.path for leaf in replica.output or ()} for replica in call.replicas]
    missing = {path for some in paths for path in some if not all(path in others for others in paths)}
    keys = {key for path in missing for key in re.findall(r"\['(\w+)'\]", path)[:1]}
    forward = function_at(forward_place(evidence))
    around = (forward, *functions_like(forward)) if forward else ()
    methods = list({id(one.node): one for one in around}.values())
    shapes = [leaf.shape for one in call.replicas for leaf in one.output or () if leaf.path in missing]
    for function, statement in ((one, part) for one in methods for part in one.statements()):
        if isinstance(statement, ast.If) and not statement.orelse and _writes_one(statement.body, keys):
            return function.whole(statement, function.block(statement.body, statement))
        if isinstance(statement, ast.If) and all(shapes) and _is_of_found_rows(statement):
            return function.whole(statement, function.block(statement.body, statement))
        for node in ast.walk(statement) if isinstance(statement, (ast.Return, ast.Assign)) else ():
            if isinstance(node, ast.IfExp) and ast.unparse(node.orelse) == "{}" and keys & _keys(node.body):
                return function.own(statement, (node, function.text(node.body)))
    if all(shapes):  # of no rows a mean is NaN
        return next((own for one in methods if (own := _without_a_guard(one))), None)
    return None


_COUNT = r"(len\(.+\)|.+\.numel\(\)|.+\.size\(0\)|.+\.shape\[0\]|.+\.sum\(\)) == 0"
_IS_EMPTY = rf"{_COUNT}|not .+\.any\(\)|not len\(.+\)"


def _is_of_found_rows(statement: ast.If) -> bool:
    """Whether it writes an element, and nothing else, where some rows were found."""
    is_plain = not statement.orelse and all(map(_writes_an_element, statement.body))
    return is_plain and re.fullmatch(_HAS_ROWS, ast.unparse(statement.test)) is not None


_HAS_ROWS = (
    r"(len\([^()]+\)|[^()]+\.(numel|any|sum)\(\)|[^()]+\.(size\(0\)|shape\[0\]))( > 0|\.item\(\)| != 0)?"
)


def _without_a_guard(function: Function) -> Repair | None:
    """Write the only line that leaves out a key of a dict that has no rows, as one that does not."""
    guards = [
        one
        for loop in function.statements()
        if isinstance(loop, ast.For) and any(map(_writes_an_element, loop.body))
        for one in loop.body
        if isinstance(one, ast.If) and isinstance(one.body[0], ast.Continue) and not one.orelse
    ]
    if len(guards) != 1 or not re.fullmatch(_IS_EMPTY, ast.unparse(guards[0].test)):
        return None
    return function.whole(guards[0], "pass   # every replica has each key, some without rows")


def _writes_an_element(statement: ast.stmt) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(one, ast.Subscript) for one in targets)


def _to_the_end(evidence: Evidence) -> Repair | None:
    """Write the only `if` that leaves a loop of forward early as one that leaves it in no replica."""
    function = function_at(forward_place(evidence))
    loops = (
        [one for one in function.statements() if isinstance(one, (ast.For, ast.While))] if function else []
    )
    exits = {
        one
        for loop in loops
        for one in ast.walk(loop)
        if isinstance(one, ast.If) and not one.orelse and isinstance(one.body[-1], (ast.Break, ast.Return))
    }
    of_data = [one for one in exits if any(isinstance(part, ast.Call) for part in ast.walk(one.test))]
    if function is None or len(of_data) != 1 or len(of_data[0].body) > 1:
        return None
    return function.whole(of_data[0], "pass   # every replica goes on to the end; choose among them outside")


def _stacked(evidence: Evidence, call: Call) -> Repair | None:
    """Write a list of what is found in a chunk, tensors of one shape, as one tensor with as many rows."""
    every = [leaf for replica in call.replicas for leaf in replica.output or ()]
    leaves = [leaf for leaf in every if leaf.type != "list"]  # an empty one
    lists = {re.sub(r"\[\d+\]$", "", leaf.path) for leaf in leaves}
    kinds = {(leaf.shape, leaf.dtype) for leaf in leaves}
    if len(lists) != 1 or len(kinds) != 1 or any(leaf.shape is None for leaf in leaves):
        return None
    (shape, dtype), given = kinds.pop(), (*evidence.scan.inputs, "x")[0]
    sizes = ", ".join(map(str, (0, *(shape or ()))))
    of_type = "" if dtype == "float32" else f", dtype=torch.{dtype}"

    def rewrite(_: ast.expr, text: str) -> str | None:
        none = f"torch.zeros({sizes}{of_type}, device={given}.device)"
        return f"torch.stack({text}) if {text} else {none}" if text.isidentifier() else None

    return returned(result_place(evidence), lists.pop(), rewrite)


def _keys(value: ast.expr) -> set[str]:
    """List the keys of a dict that is written out."""
    keys = value.keys if isinstance(value, ast.Dict) else []
    return {str(key.value) for key in keys if isinstance(key, ast.Constant)}


def _writes_one(body: list[ast.stmt], keys: set[str]) -> bool:
    """Whether statements write one of these keys: `out["aux"] = ...`, or `out[f"task_{index}"] = ...`."""
    targets = [target for one in body if isinstance(one, ast.Assign) for target in one.targets]
    patterns = [_pattern(one.slice) for one in targets if isinstance(one, ast.Subscript)]
    return any(re.fullmatch(pattern, key) for pattern in patterns for key in keys)


def _pattern(key: ast.expr) -> str:
    """Write a pattern of the texts that a key may be; one that nothing matches where it is no text."""
    match key:
        case ast.Constant(value=value):
            return re.escape(str(value))
        case ast.JoinedStr(values=parts):
            texts = [str(one.value) if isinstance(one, ast.Constant) else "" for one in parts]
            return "".join(re.escape(text) if text else ".+" for text in texts)
    return "(?!)"


@rule("DP406", "shape-differs", "error", unless=("DP205", "DP317"))
def shape_differs(evidence: Evidence) -> Iterator[Found]:
    """Replicas return tensors that differ in more than their rows.

    What happens: `Input tensor at index 1 has invalid shape [1, 230], but expected [1, 231]`.
    Why: gather joins along the batch dimension and wants all others equal; sizes that depend on the data,
        such as padding to the longest of a chunk, differ.
    Before: return y[:, : lengths.max()]
    After: return y   # padded to the size of the input
    Seen by: the shapes of each replica's result, before gather.
    References: pytorch/pytorch#44141, huggingface/transformers#1220
    """
    if evidence.scan.pads_alone:
        return
    for probe, call in gathered_calls(evidence):
        ragged = dict(_ragged(probe, call, evidence))
        if not ragged or probe.comparison.values_equal:  # a wrapper of the user's own has padded them
            continue
        (path, part), *others = ragged.items()
        plain = _not_trimmed(evidence, part.dim)
        plain = plain and plain._replace(after=f"{plain.after}   # as long in each replica")
        own = size_handed_over(probe.call or call, evidence) or plain or as_long_as_given(evidence)
        also = f"; sizes of {listed([other for other, _ in others])} differ too" if others else ""
        yield Found(
            ",".join(ragged),
            f"{result_at(path)} has size {sizes_of(part.sizes)} on dimension {part.dim}{also}",
            forward_place(evidence),
            probe,
            repair=own or padded_before_gather(ragged, dict(probe.comparison.fillings)),
        )


def _ragged(probe: Probe, call: Call, evidence: Evidence) -> Iterator[tuple[str, Ragged]]:
    """List the parts of a result whose sizes differ from replica to replica, by path."""
    alone = {leaf.path: leaf.shape or () for leaf in probe.single.output}
    for path, shapes in shapes_of(call).items():
        ranks = {len(shape) for shape in shapes}
        if len(shapes) < 2 or len(ranks) > 1:
            continue
        for dim in range(max(ranks)):
            sizes = [shape[dim] for shape in shapes]
            if dim == from_the_start(call.dim, max(ranks)) or len(set(sizes)) == 1:
                continue
            if not (is_batch(alone.get(path, ()), dim, call.rows) and _follows(path, dim, evidence)):
                yield path, Ragged(dim, max(ranks), sizes)


def _follows(path: str, dim: int, evidence: Evidence) -> bool:
    """Return whether a size of the result is that of the batch for any batch: then it is of pairs."""
    shapes = [
        (leaf.shape or (), probe.call.rows)
        for probe in evidence.probes
        if probe.call is not None
        for leaf in probe.single.output
        if leaf.path == path
    ]
    return all(is_batch(shape, dim, rows) for shape, rows in shapes)


def _not_trimmed(evidence: Evidence, dim: int) -> Repair | None:
    """Write forward's only statement that cuts a tensor off on a dimension, and the same without that."""
    function = function_at(forward_place(evidence))
    found: list[tuple[ast.stmt, ast.Subscript, ast.Slice]] = []
    for statement in function.statements() if function else ():
        for node in ast.walk(statement) if isinstance(statement, (ast.Return, ast.Assign)) else ():
            match node:
                case ast.Subscript(slice=ast.Tuple(elts=parts)) if len(parts) > dim:
                    last = parts[dim]
                    if (
                        isinstance(last, ast.Slice)
                        and last.upper
                        and not isinstance(last.upper, ast.Constant)
                    ):
                        found.append((statement, node, last))
    if function is None or len(found) != 1:
        return None
    statement, node, last = found[0]
    limits = names_in(last.upper) if last.upper is not None else set()
    loads = (
        one for one in ast.walk(function.node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
    )
    if any(one.id in limits - function.arguments() for one in loads if one not in ast.walk(last)):
        return None  # something else is as long
    others = [one for one in node.slice.elts if one is not last] if isinstance(node.slice, ast.Tuple) else []
    if all(ast.unparse(one) == ":" for one in others) and last.lower is None:
        return function.own(statement, (node, function.text(node.value)))
    return function.own(statement, (last, f"{ast.unparse(last.lower) if last.lower else ''}:"))


def sizes_of(sizes: Sequence[int]) -> str:
    """Write sizes that should be one: `3, 5, 5 and 5`."""
    return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
