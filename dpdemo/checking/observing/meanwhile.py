"""What a forward fills with tensors and leaves as it was: replicas meet there, and nothing shows it after.

A stack that an encoder fills and a decoder empties, or an object that a mask is put on and taken off again,
is one and the same for all replicas. It is looked at before each line of a forward, and each time that a
module begins or ends.
"""

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from dpdemo.checking.observing.holders import attributes, is_changeable
from dpdemo.checking.observing.state import changeable_parts
from dpdemo.checking.running.runs import Runner
from dpdemo.checking.source import code_of
from dpdemo.models.inputs import Arguments

_DEEPEST = 3


class _Tensor(NamedTuple):
    """A tensor, by its identity."""

    identity: int


def used_meanwhile(runner: Runner, mode: str, given: Arguments) -> tuple[tuple[str, ...], ...]:
    """Run a plain call, and list the containers and objects of modules that are changed only meanwhile.

    Returns:
        For each the paths by which modules hold it. One whose keys are GPUs is left out.

    """
    prototype = runner.source.prototype
    if not any(True for _ in changeable_parts(prototype)):
        return ()
    model = runner.single_model(mode)
    held: dict[int, tuple[object, list[str]]] = {}
    for path, value in changeable_parts(model):
        held.setdefault(id(value), (value, []))[1].append(path)
    before = {key: _outline(value) for key, (value, _) in held.items()}
    seen: dict[int, Any] = {}

    def look(*_: object) -> None:
        for key, (value, _paths) in held.items():
            if key not in seen and _tensors(now := _outline(value)) - _tensors(before[key]):
                seen[key] = now

    for module in model.modules():
        module.register_forward_pre_hook(look)
        module.register_forward_hook(look)
    with _at_each_line(model, look):
        if runner.called_aside(model, given) is None:
            return ()
    return tuple(
        tuple(held[key][1])
        for key, now in seen.items()
        if _tensors(_outline(held[key][0])) <= _tensors(before[key]) and not _names_a_gpu(now)
    )


@contextlib.contextmanager
def _at_each_line(model: nn.Module, look: Callable[[], None]) -> Iterator[None]:
    """Look before each line of users' forwards, for a `with` block; not in a thread that is traced."""
    codes = {code_of(module.forward) for module in model.modules()} - {None}

    def within(_frame: FrameType, event: str, _value: object) -> Any:
        if event == "line":
            look()
        return within

    if sys.gettrace() is not None or not codes:
        yield
        return
    sys.settrace(lambda frame, _event, _value: within if frame.f_code in codes else None)
    try:
        yield
    finally:
        sys.settrace(None)


def _outline(value: object, depth: int = 0) -> Any:
    """Say what a container or an object holds, by the identity of all but numbers and texts."""
    if isinstance(value, (int, float, str, torch.device, type(None))):
        return value
    if isinstance(value, torch.Tensor):
        return _Tensor(id(value))
    if depth < _DEEPEST and not isinstance(value, (nn.Module, torch.Tensor, type)):
        if isinstance(value, dict):
            return tuple((_outline(key, depth + 1), _outline(one, depth + 1)) for key, one in value.items())
        if isinstance(value, (list, tuple, set, deque)):
            return tuple(_outline(one, depth + 1) for one in value)
        if is_changeable(value):
            return tuple((name, _outline(one, depth + 1)) for name, one in attributes(value).items())
    return id(value)


def _tensors(outline: object) -> set["_Tensor"]:
    """List the tensors in an outline."""
    if isinstance(outline, tuple) and not isinstance(outline, _Tensor):
        return {one for part in outline for one in _tensors(part)}
    return {outline} if isinstance(outline, _Tensor) else set()


def _names_a_gpu(outline: object) -> bool:
    """Whether a key, or an element, is a GPU."""
    if isinstance(outline, tuple):
        return any(map(_names_a_gpu, outline))
    return isinstance(outline, torch.device) or (isinstance(outline, str) and outline.startswith("cuda"))
