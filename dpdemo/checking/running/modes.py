"""Whether a model could go by its mode; where it cannot, a batch runs alike in training and in evaluation."""

from collections.abc import Iterator
from types import CodeType
from typing import Any

from torch import nn

from dpdemo.checking.observing.hooks import functions_from
from dpdemo.checking.observing.state import HOOKS

_MODE = "training"
_RECURRENT = (nn.RNN, nn.LSTM, nn.GRU)
"""They hand their mode on to the kernel, which drops nothing out in it where `dropout` is 0."""


def may_differ(model: nn.Module) -> bool:
    """Return whether any code of a model names `training`, or does something when a mode is set."""
    return any(map(_knows_its_mode, model.modules()))


def _knows_its_mode(module: nn.Module) -> bool:
    kind = type(module)
    if kind in _RECURRENT and vars(module)["dropout"] == 0:
        return False
    bases = [base for base in kind.__mro__ if issubclass(base, nn.Module) and base is not nn.Module]
    if (
        kind.train is not nn.Module.train
        or "train" in vars(module)
        or any(_MODE in vars(base) for base in bases)
    ):
        return True
    parts = [*(part for base in bases for part in vars(base).values()), *vars(module).values()]
    hooks = [hook for name in HOOKS for hook in getattr(module, name, {}).values()]
    return any(_names_mode(code) for part in (*parts, *hooks) for code in _codes(part))


def _codes(part: Any) -> Iterator[CodeType]:
    """List the code of a method, a property or a function, and of the user's functions that it names."""
    for callee in (part, getattr(part, "__func__", None), getattr(part, "fget", None)):
        yield from (function.__code__ for function in functions_from(callee))


def _names_mode(code: CodeType) -> bool:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return _MODE in code.co_names or _MODE in code.co_consts or any(map(_names_mode, inner))
