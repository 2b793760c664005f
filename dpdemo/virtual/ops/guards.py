"""Numbers that are read only to check or to scale: where none are known, these need not be refused.

Two kinds of reader are recognised, apart from the user's own decisions. A *check* is an `if` that does
nothing but raise, or an `assert`: it is taken to pass, as it does in a step that goes well. And what an
optimizer reads in its step (Adafactor the size of an update) scales that update, whose shape is known: a 1
will do there.
"""

import ast
import functools
import inspect
import sys
import textwrap
from pathlib import Path
from types import CodeType, FrameType

import torch


def answer_of_check() -> bool | None:
    """Return the truth value with which the check that asks passes, or None if no check asks."""
    frame = _outer_frame()
    if frame is None:
        return None
    return _passing(frame.f_code, frame.f_lineno)


def place_of_reader() -> str:
    """Name the file and line of the code that reads a number."""
    frame = _outer_frame()
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else ""


def in_check_of_tensors() -> bool:
    """Return whether `torch._check_tensor_all` asks, which does nothing but raise unless all is true."""
    frame, check = _outer_frame(), torch._check_tensor_all_with
    return frame is not None and frame.f_code is check.__code__


def in_optimizer_step() -> bool:
    """Return whether an optimizer's `step` asks."""
    frame = _outer_frame()
    while frame is not None:
        if frame.f_code.co_name == "step" and isinstance(frame.f_locals.get("self"), torch.optim.Optimizer):
            return True
        frame = frame.f_back
    return False


def _outer_frame() -> FrameType | None:
    """Return the frame of the code that uses a tensor: the first outside this package's `virtual` room."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("dpdemo.virtual"):
        frame = frame.f_back
    return frame


@functools.cache
def _passing(code: CodeType, line: int) -> bool | None:
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):
        return None
    offset = line - max(first, 1) + 1
    for node in ast.walk(tree):
        test = _test_of_check(node)
        if test is not None and test.lineno <= offset <= (test.end_lineno or test.lineno):
            is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
            return isinstance(node, ast.Assert) is not is_negated
    return None


def _test_of_check(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.Assert):
        return node.test
    if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ast.Raise):
        return node.test
    return None
