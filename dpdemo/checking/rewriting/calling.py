"""The program's line that calls the model, as it is written for a forward that returns more or does less."""

import ast
from collections.abc import Sequence

from dpdemo.checking.evidence import Call
from dpdemo.checking.looking import call_of
from dpdemo.reports.check import Change


def around_call(
    call: Call,
    names: str,
    *,
    first: Sequence[str] = (),
    given: str = "",
    then: Sequence[str] = (),
) -> Change:
    """Write the line that calls the model, and the lines that it becomes.

    Args:
        call: a call, whose arguments the line has.
        names: what the program calls the result.
        first: lines before the call.
        given: what the repaired forward returns, by names; `names` where it returns the same.
        then: lines behind the call.

    """
    text = call_of(call)
    lines = [*first, f"{given or names} = {text}", *then]
    return Change(None, f"{names} = {text}", "\n".join(lines))


def result_names(value: ast.expr, default: str = "result") -> str:
    """Write what a program may call what forward returns: by the names that forward has for it."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    names = [one.id if isinstance(one, ast.Name) else "" for one in parts]
    if len(parts) == 1:
        return names[0] or default
    return ", ".join(name or f"{default}_{index}" for index, name in enumerate(names))
