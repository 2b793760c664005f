"""A hook that forward puts in, with a dict of hooks for each replica's own module."""

import ast

from dpdemo.checking.evidence import HOOKS_OF, Event
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import function_at
from dpdemo.reports.check import Change, Place


def hooks_of_its_own(event: Event) -> tuple[Change, ...]:
    """Write a statement that puts in a hook, and one before it that copies the dict; () of others."""
    function = function_at(event.place)
    if function is None or event.place is None:
        return ()
    for statement in function.statements():
        if not isinstance(statement, (ast.Assign, ast.Expr)) or not _is_at(statement, event.place):
            continue
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=ast.Attribute(value=value, attr=name)) if HOOKS_OF.get(name) == event.own:
                    if any(isinstance(one, ast.comprehension) for one in ast.walk(statement)):
                        return ()
                    hooks = f"{function.text(value)}.{event.own}"
                    edits = Edits(function.file)
                    edits.in_front(statement, f"{hooks} = {hooks}.copy()\n{' ' * statement.col_offset}")
                    return edits.changes()
    return ()


def _is_at(statement: ast.stmt, place: Place) -> bool:
    return statement.lineno <= place.line <= (statement.end_lineno or statement.lineno)
