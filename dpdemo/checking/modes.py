"""Whether a model asks if it is in training; where it does not, a batch runs alike in both modes.

Modules keep their mode as the attribute `training`. While `watched` is open nn.Module has a descriptor of
that name over it, so that no read and no write goes unseen: by a layer of PyTorch's or the user's own, in a
replica or out of it. A class can have other ways, and those that do are not answered for: see `may_differ`.
"""

import contextlib
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from dpdemo.virtual.patches.applying import Patch, applied

_MODE = "training"
_RECURRENT = frozenset(kind.forward.__code__ for kind in (nn.RNN, nn.LSTM, nn.GRU))
"""They hand their mode on to the kernel, which drops nothing out in it where `dropout` is 0."""
_SETTING = (nn.Module.__setattr__, nn.RNNBase.__setattr__)


class ModeWatch:
    """Notes whether any module's mode was asked for, or set, since `forget`."""

    def __init__(self) -> None:
        self.noticed = False

    def forget(self) -> None:
        """Begin anew."""
        self.noticed = False

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Note nothing for the length of a `with` block: a mode is set there, and no forward runs."""
        before = self.noticed
        try:
            yield
        finally:
            self.noticed = before

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch all modules of this process, for the length of a `with` block."""
        with applied([Patch(nn.Module, _MODE, _Mode(self), "who asks for the mode is noted")]):
            yield


class _Mode:
    """Stands over each module's own `training`; no property, for TorchScript would compile that."""

    def __init__(self, watch: ModeWatch) -> None:
        self._watch = watch

    def __get__(self, module: nn.Module | None, _: type) -> bool:
        if module is None or _MODE not in vars(module):
            raise AttributeError(_MODE)  # of a module `__getattr__` follows, with PyTorch's own words
        if not (sys._getframe(1).f_code in _RECURRENT and vars(module).get("dropout") == 0):
            self._watch.noticed = True
        mode: bool = vars(module)[_MODE]
        return mode

    def __set__(self, module: nn.Module, mode: bool) -> None:
        if _MODE in vars(module):  # else it is only being made
            self._watch.noticed = True
        vars(module)[_MODE] = mode

    def __delete__(self, module: nn.Module) -> None:
        self._watch.noticed = True
        del vars(module)[_MODE]


def may_differ(model: nn.Module) -> bool:
    """Return whether a model could go by its mode although no `training` is ever asked for.

    A module can do something of its own when it is put into a mode, or read its attributes by hand.
    """
    modules = list(model.modules())
    kinds = {type(module) for module in modules}
    return any("train" in vars(module) for module in modules) or any(map(_has_other_ways, kinds))


def _has_other_ways(kind: Any) -> bool:
    own = [base for base in kind.__mro__ if issubclass(base, nn.Module) and not _is_pytorchs(base)]
    return (
        kind.train is not nn.Module.train
        or kind.__getattribute__ is not nn.Module.__getattribute__
        or kind.__setattr__ not in _SETTING
        or any(_MODE in vars(base) for base in own)
        or any(_reads_by_hand(part) for base in own for part in vars(base).values())
    )


def _is_pytorchs(kind: type) -> bool:
    return kind.__module__.startswith("torch.nn.")


def _reads_by_hand(part: object) -> bool:
    code = part.__code__ if isinstance(part, FunctionType) else part
    return isinstance(code, CodeType) and (
        not {"__dict__", "vars"}.isdisjoint(code.co_names) or any(map(_reads_by_hand, code.co_consts))
    )
