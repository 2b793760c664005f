"""Lists with an element for each sample that a part makes: joined in forward, and taken apart outside."""

import ast
import re

from dpdemo.checking.evidence import Call, Evidence, Probe
from dpdemo.checking.looking import counts_of, result_place
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.calling import around_call, result_names
from dpdemo.checking.rewriting.results import part_at, whole_return
from dpdemo.checking.rewriting.turned import outside_name
from dpdemo.reports.check import Place

_NAME = "result"


def joined_lists(probe: Probe, evidence: Evidence) -> Repair | None:
    """Write forward's lists of tensors, or of dicts of them, as tensors that gather joins, and lists outside.

    Pieces of several lengths have their counts beside them. None where a list is neither written out in
    forward, nor in what a call returns that forward returns as it is.
    """
    place, call = result_place(evidence, probe.call), probe.call
    counts = counts_of(probe.single.output)
    paths = [path for path, number in counts.items() if call is not None and number == call.rows]
    shapes = {path: _shapes_at(path, probe) for path in paths}
    if call is None or not paths or not all(shapes.values()):
        return None
    device = f"{(*evidence.scan.inputs, 'x')[0]}.device"
    return _where_written(place, shapes, device, call) or _of_a_call(place, shapes, device, call)


def _where_written(
    place: Place | None, shapes: "dict[str, _Shapes]", device: str, call: Call
) -> Repair | None:
    """Write each list anew where it stands in the result; None where one does not, or they are far apart."""
    end, parts = whole_return(place), {path: part_at(place, path) for path in shapes}
    found = {path: part for path, part in parts.items() if part is not None and part.path == path}
    statements = {part.statement for part in found.values()}
    if end is None or len(found) < len(parts) or len(statements) != 1:
        return None
    names, first, pairs, then = result_names(end[2]), [], [], []
    for path, part in found.items():
        is_dict = isinstance(part.node, (ast.Dict, ast.DictComp))
        listed = part.text if isinstance(part.node, ast.Name) else "per_sample"
        first += [] if listed == part.text else [f"per_sample = {part.text}"]
        code, _ = _joined(f"{listed}.values()" if is_dict else listed, shapes[path], device)
        pairs.append((part.node, code))
        target = outside_name(path, names)
        then += _joined(target, shapes[path], device)[1] if target and not is_dict else []
    if len(first) > 1:
        return None
    part = next(iter(found.values()))
    own = part.function.own(part.statement, *pairs)
    own = own._replace(after="\n".join([*first, own.after]))
    return own._replace(also=(around_call(call, names, then=then),)) if then else own


def _of_a_call(place: Place | None, shapes: "dict[str, _Shapes]", device: str, call: Call) -> Repair | None:
    """Write `return self.head(x)` in two lines, the second with each list of the result as a tensor."""
    whole = part_at(place, "")
    if whole is None or not isinstance(whole.node, ast.Call) or not isinstance(whole.statement, ast.Return):
        return None
    parts = {path: _joined(f"{_NAME}{path}", of_keys, device) for path, of_keys in shapes.items()}
    text = _display({path: code for path, (code, _) in parts.items()})
    if text is None:
        return None
    own = whole.own(text)
    lines = around_call(call, _NAME, then=[line for _, then in parts.values() for line in then])
    return own._replace(after=f"{_NAME} = {whole.text}\n{own.after}", also=(lines,))


_Shapes = dict[str, list[tuple[int, ...]]]
"""The shapes of a list's elements, by the key of each in a dict; by "" where they are no dicts."""


def _shapes_at(path: str, probe: Probe) -> _Shapes:
    """List the shapes of a list's elements; none where one of them is neither a tensor nor a dict of them."""
    found: _Shapes = {}
    for leaf in probe.single.output:
        if leaf.path.startswith(f"{path}["):
            step = re.fullmatch(r"\[\d+\](?:\['(\w+)'\])?", leaf.path.removeprefix(path))
            if step is None or not leaf.shape:
                return {}
            found.setdefault(step[1] or "", []).append(leaf.shape)
    return found if len({len(of_all) for of_all in found.values()}) == 1 else {}


def _joined(name: str, shapes: _Shapes, device: str) -> tuple[str, list[str]]:
    """Write a list as tensors, and the lines that make the list of them again."""
    uneven = [key for key, of_all in shapes.items() if len(set(of_all)) > 1]
    if set(shapes) == {""}:
        counts = f"torch.tensor([len(one) for one in {name}], device={device})"
        if not uneven:
            return f"torch.stack({name})", [f"{name} = list({name})"]
        return f"(torch.cat({name}), {counts})", [f"{name} = list({name}[0].split({name}[1].tolist()))"]
    codes = [
        f'"{key}": torch.{"cat" if key in uneven else "stack"}([one["{key}"] for one in {name}])'
        for key in shapes
    ]
    if uneven:
        codes.append(f'"counts": torch.tensor([len(one["{uneven[0]}"]) for one in {name}], device={device})')
    pieces = [f'{name}["{key}"]' + (".split(counts)" if key in uneven else "") for key in shapes]
    keys = ", ".join(f'"{key}"' for key in shapes)
    lines = [f'counts = {name}["counts"].tolist()'] if uneven else []
    keys += "," * (len(shapes) == 1)
    lines.append(f"{name} = [dict(zip(({keys}), parts)) for parts in zip({', '.join(pieces)})]")
    return f"{{{', '.join(codes)}}}", lines


def _display(written: dict[str, str]) -> str | None:
    """Write the result with its lists written anew; None where it is no dict of them, and no list."""
    if set(written) == {""}:
        return written[""]
    if all(re.fullmatch(r"\['\w+'\]", path) for path in written):
        parts = [f'"{path[2:-2]}": {text}' for path, text in written.items()]
        return f"{{**{_NAME}, {', '.join(parts)}}}"
    return None
