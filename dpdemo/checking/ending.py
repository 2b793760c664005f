"""Which of forward's several `return` statements a call went through."""

import ast
import contextlib
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any

from dpdemo.checking.source import function_at
from dpdemo.models.frames import is_users
from dpdemo.reports.check import Place


@contextlib.contextmanager
def noting_return(forward: Any, noted: list[Place]) -> Iterator[None]:
    """Note the line by which a user's forward returns, where it has several, for a `with` block.

    A thread that is traced already, by a debugger say, is left alone.
    """
    code = getattr(inspect.unwrap(getattr(forward, "__func__", forward)), "__code__", None)
    if code is None or sys.gettrace() is not None or not _has_several(code):
        yield
        return

    def leaving(frame: FrameType, event: str, result: object) -> Any:
        if event == "return" and result is not None:
            noted[:] = [Place(code.co_filename, frame.f_lineno, code.co_name)]
        return leaving

    def entering(frame: FrameType, _event: str, _: object) -> Any:
        if frame.f_code is not code:
            return None
        frame.f_trace_lines = False
        return leaving

    sys.settrace(entering)
    try:
        yield
    finally:
        sys.settrace(None)


@cache
def _has_several(code: CodeType) -> bool:
    """Whether a function of the user's has two `return` statements or more."""
    if not is_users(code.co_filename):
        return False
    function = function_at(Place(code.co_filename, code.co_firstlineno))
    ends = [one for one in function.statements() if isinstance(one, ast.Return)] if function else []
    return len(ends) > 1
