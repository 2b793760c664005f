"""Where in forward the numbers of a sample begin to depend on the other samples of its batch.

A plain call of a batch and one of its first chunk go through the same statements. What a statement gives a
value is, in the batch's call, the chunk's own with more rows: until the first statement that mixes samples.
"""

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from dpdemo.calls.tree import flatten, tensors_in
from dpdemo.checking.observing.closeness import same_numbers
from dpdemo.checking.source import code_of, line_of
from dpdemo.results.findings import Place

_MOST_STEPS = 2000
"""A forward that goes through a loop may take many."""


class _Step(NamedTuple):
    """A line that is about to run, and what the names of forward stand for by then."""

    line: int
    names: dict[str, object]
    versions: dict[int, int]


@contextlib.contextmanager
def tracing(codes: set[CodeType], look: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Look at each step of the functions with these codes, for a `with` block.

    Not in a thread that is traced already.
    """

    def within(frame: FrameType, event: str, value: object) -> Any:
        look(frame, event, value)
        return within

    if sys.gettrace() is not None or not codes:
        yield
        return
    sys.settrace(lambda frame, _event, _value: within if frame.f_code in codes else None)
    try:
        yield
    finally:
        sys.settrace(None)


@contextlib.contextmanager
def traced(model: nn.Module) -> Iterator[list[_Step]]:
    """List the lines of its forward that a plain call of a model goes through, for a `with` block."""
    code = code_of(model.forward)
    steps: list[_Step] = []

    def note(frame: FrameType, event: str, value: object) -> None:
        if event in {"line", "return"} and len(steps) < _MOST_STEPS:
            end = {"return": value} if event == "return" else {}
            names = {**frame.f_locals, **end}
            steps.append(_Step(frame.f_lineno, names, _versions(names)))

    with tracing(set() if code is None else {code}, note):
        yield steps


def _versions(value: object) -> dict[int, int]:
    """Note by its identity how often each tensor has been changed in place."""
    return {id(tensor): tensor._version for tensor in tensors_in(value) if not tensor.is_inference()}


def _is_as_noted(value: object, versions: dict[int, int]) -> bool:
    """Whether tensors were not changed in place since: what they held before is not known any more."""
    return all(versions.get(key, version) == version for key, version in _versions(value).items())


def first_mixing(whole: list[_Step], chunk: list[_Step], code: CodeType | None) -> Place | None:
    """Compare the call of a batch with that of its first chunk, to find the line where samples are mixed."""
    line = _first_line(whole, chunk)
    return line_of(code.co_filename, line, code.co_name) if code is not None and line else None


def _first_line(whole: list[_Step], chunk: list[_Step]) -> int:
    """Find the line that first gives a name what is no chunk's; 0 where the calls take other ways before."""
    seen: dict[tuple[int, int], bool] = {}
    for (before, _), (now, its) in pairwise(zip(whole, chunk, strict=False)):
        if now.line != its.line:
            return 0
        for name, value in now.names.items():
            key = id(value), id(its.names.get(name))
            if key not in seen:
                seen[key] = is_chunk_of(value, its.names.get(name))
            if not seen[key] and _is_as_noted(value, now.versions):
                return before.line
    return 0


def is_chunk_of(whole: object, part: object) -> bool:
    """Whether the numbers of a chunk are the first of the batch's, in each tensor along one dimension.

    A tensor that grows with the batch along two dimensions has pairs of samples, which are mixed. Whole
    numbers may count the batch.
    """
    if isinstance(whole, nn.Module):
        return True
    others = dict(flatten(part))
    return all(_is_leaf_of(leaf, others[path]) for path, leaf in flatten(whole) if path in others)


def _is_leaf_of(whole: object, part: object) -> bool:
    if isinstance(whole, torch.Tensor) and isinstance(part, torch.Tensor):
        if whole.dim() != part.dim():
            return False
        longer = [dim for dim in range(whole.dim()) if whole.size(dim) != part.size(dim)]
        if len(longer) > 1:
            return False
        for dim in longer:
            if part.size(dim) > whole.size(dim):
                return False
            whole = whole.narrow(dim, 0, part.size(dim))
        return same_numbers(whole, part)
    if isinstance(whole, float) and isinstance(part, float):
        return math.isclose(whole, part, rel_tol=1e-5) or (math.isnan(whole) and math.isnan(part))
    return not (isinstance(whole, bool) and isinstance(part, bool)) or whole == part
