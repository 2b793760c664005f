"""What a forward fills with tensors and leaves as it was: replicas meet there, and nothing shows it after.

A stack that an encoder fills and a decoder empties, or an object that a mask is put on and taken off again,
is one and the same for all replicas. It is looked at before each line of a forward, and each time that a
module begins or ends.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

from dpdemo.checking.observing.holders import names_a_gpu, walk
from dpdemo.checking.observing.state import changeable_parts
from dpdemo.checking.running.runs import Runner
from dpdemo.checking.source import code_of
from dpdemo.models.inputs import Arguments


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
    before = {key: _tensors(value) for key, (value, _) in held.items()}
    seen: dict[int, bool] = {}

    def look(*_: object) -> None:
        for key, (value, _paths) in held.items():
            if key not in seen and _tensors(value) - before[key]:
                seen[key] = names_a_gpu(walk(value))

    for module in model.modules():
        module.register_forward_pre_hook(look)
        module.register_forward_hook(look)
    with _at_each_line(model, look):
        if runner.called_aside(model, given) is None:
            return ()
    return tuple(
        tuple(held[key][1])
        for key, is_by_gpu in seen.items()
        if _tensors(held[key][0]) <= before[key] and not is_by_gpu
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


def _tensors(value: object) -> set[int]:
    """List the tensors that a value holds, by their identity."""
    return {id(part.value) for part in walk(value) if isinstance(part.value, torch.Tensor)}
