"""Signatures that list the config's keys: for `help()`, editors and notebooks."""

import inspect
from collections.abc import Callable
from typing import TypeVar

from dpdemo.config.fields import KEYS, Keys

__all__ = ["Keys", "showing_keys"]

Function = TypeVar("Function", bound=Callable[..., object])


def showing_keys(function: Function) -> Function:
    """List every key with its default in the signature of a function with `**overrides`.

    `help(dpdemo.simulate)` and the Tab key of a notebook then show `gpus` and `batch_size`.
    """
    signature = inspect.signature(function)
    *others, overrides = signature.parameters.values()
    assert overrides.kind is inspect.Parameter.VAR_KEYWORD  # noqa: S101 - our own functions
    keys = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=KEYS[name].default, annotation=kind)
        for name, kind in Keys.__annotations__.items()
    ]
    vars(function)["__signature__"] = signature.replace(parameters=[*others, *keys])
    return function
