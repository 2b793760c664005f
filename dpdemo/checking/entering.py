"""Which of a function's names are tensors: a plain call shows it, where the code does not say.

A repair asks one of them for its GPU. `n` may be a length, and `fn` what a tensor is given to.
"""

import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import NamedTuple

import torch
from torch import nn

from dpdemo.checking.evidence import Entered
from dpdemo.checking.runs import Runner
from dpdemo.checking.source import attribute_of
from dpdemo.models.frames import is_installed, is_users
from dpdemo.models.inputs import Arguments


class _Names(NamedTuple):
    """What a function had in one call, or in each of several."""

    tensors: tuple[str, ...]
    numbers: tuple[str, ...]

    def also_in(self, other: "_Names") -> "_Names":
        """Leave out what was something else in another call."""
        both = zip(self, other, strict=True)
        return _Names(*(tuple(name for name in now if name in before) for now, before in both))


def entered_functions(runner: Runner, mode: str, given: Arguments) -> tuple[Entered, ...]:
    """Run a plain call, and list the user's functions that it went into; none where a profiler is on."""
    seen: dict[CodeType, _Names] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and _can_be_read(code.co_filename):
            found = _Names(*map(tuple, (_tensors_of(frame), _numbers_of(frame))))
            seen[code] = found.also_in(seen.get(code, found))

    if sys.getprofile() is not None:
        return ()
    model = runner.single_model(mode)
    sys.setprofile(note)
    try:
        runner.called_aside(model, given)
    finally:
        sys.setprofile(None)
    return tuple(Entered(code.co_filename, code.co_firstlineno, *names) for code, names in seen.items())


def _can_be_read(file: str) -> bool:
    """Whether it is a file of the user's, and no text that was made as one, as of a named tuple."""
    return is_users(file) and not is_installed(file) and not file.startswith("<")


def _tensors_of(frame: FrameType) -> Iterator[str]:
    """List the code of what is a tensor on the GPU: an argument, or in one, a parameter or a buffer."""
    given = _arguments_of(frame)
    for name, value in given.items():
        if _is_on_gpu(value):
            yield name
        elif (
            isinstance(value, (list, tuple))
            and type(value) in {list, tuple}
            and any(map(_is_on_gpu, value[:1]))
        ):
            yield f"{name}[0]"
        elif isinstance(value, dict):
            yield from (f"{name}[{key!r}]" for key, one in list(value.items())[:1] if _is_on_gpu(one))
    me = next(iter(given.items()), None)
    if me is not None and isinstance(me[1], nn.Module):
        for path, tensor in (*me[1].named_parameters(), *me[1].named_buffers()):
            if _is_on_gpu(tensor):
                yield attribute_of(path, me[0])
                return


def _numbers_of(frame: FrameType) -> Iterator[str]:
    """List the arguments that are whole numbers."""
    return (name for name, value in _arguments_of(frame).items() if type(value) is int)


def _arguments_of(frame: FrameType) -> dict[str, object]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {name: frame.f_locals[name] for name in names if name in frame.f_locals}


def _is_on_gpu(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda
