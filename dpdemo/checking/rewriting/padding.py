"""Results that a replica pads to the longest of its chunk, returned as rows and padded behind the call."""

import ast
from collections.abc import Mapping

from dpdemo.checking.evidence import Call
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.calling import around_call, result_names
from dpdemo.checking.rewriting.results import whole_return
from dpdemo.reports.check import Place


def padded_outside(ragged: Mapping[str, int], end: Place | None, call: Call) -> Repair | None:
    """Write forward's return with rows in place of what differs in length, and the call with what pads them.

    Args:
        ragged: the parts of the result that differ, by path, with the dimension on which they do.
        end: where forward returns.
        call: the call.

    Returns:
        None where a part is not written out, or the dimension of its length is that of the batch.

    """
    found = whole_return(end)
    if found is None or call.dim != 0 or any(dim < 1 for dim in ragged.values()):
        return None
    function, statement, value = found
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    paths = [f"[{index}]" for index in range(len(parts))] if isinstance(value, ast.Tuple) else [""]
    if not isinstance(statement, ast.Return) or not set(ragged) <= set(paths):
        return None
    names = result_names(value).split(", ")
    lines, returned, lengths, behind = [], [], [], []
    for path, name, part in zip(paths, names, parts, strict=True):
        if path not in ragged:
            returned.append(function.text(part))
            continue
        turn = f".transpose(1, {ragged[path]})" if ragged[path] > 1 else ""
        length = f"lengths_of_{name}" if len(ragged) > 1 else "lengths_there"
        if not isinstance(part, ast.Name):
            lines.append(f"{name} = {function.text(part)}")
        sizes = f"(len({name}),), {name}.size({ragged[path]})"
        lines.append(f"{length} = torch.full({sizes}, device={name}.device)")
        returned.append(f"{name}{turn}.flatten(0, 1)")
        lengths.append(length)
        rows = f"{name}.split({length}.tolist())"
        behind.append(f"{name} = nn.utils.rnn.pad_sequence({rows}, batch_first=True){turn}")
    lines.append(f"return {', '.join([*returned, *lengths])}")
    own = function.rewritten(statement, statement, "\n".join(lines))
    given = ", ".join([*names, *lengths])
    return own._replace(also=(around_call(call, ", ".join(names), given=given, then=behind),))
