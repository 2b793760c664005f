"""Fresh copies of the user's model, so that the model itself is never run.

`copy.deepcopy` does it, but for two things: a function that closes over the model goes on using the
original, and a tensor that is not a leaf cannot be copied. Closures are rebound here; for the rest the
factory is called again.
"""

import copy
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dpdemo.errors import UsageError


class ModelSource:
    """Hands out models that are alike in every number."""

    def __init__(self, prototype: nn.Module, rebuild: Callable[[], nn.Module] | None = None) -> None:
        self.prototype = prototype
        self._rebuild = rebuild

    def fresh(self) -> nn.Module:
        """Make a copy of the model as it was given.

        Raises:
            UsageError: if it can neither be copied nor built again.

        """
        try:
            return deep_copy(plain(self.prototype))
        except Exception as error:
            if self._rebuild is None:
                raise UsageError(
                    f"expected a model that can be copied, got {type(error).__name__}: {error} - "
                    f"from copy.deepcopy({type(self.prototype).__name__})",
                    hint="give a function that builds the model instead of the model",
                ) from error
        model = self._rebuild()
        model.load_state_dict(self.prototype.state_dict())
        return model


def plain(model: nn.Module) -> nn.Module:
    """Take a model out of `torch.compile`: what is compiled leads back to the original in every replica."""
    original = vars(model).get("_modules", {}).get("_orig_mod")
    return original if isinstance(original, nn.Module) else model


def deep_copy(model: nn.Module) -> nn.Module:
    """Copy a model together with the functions that close over it."""
    memo: dict[int, Any] = {}
    twin: nn.Module = copy.deepcopy(model, memo)
    for module in twin.modules():
        module._compiled_call_impl = None
        for name, child in module.named_children():
            module._modules[name] = plain(child)
    for parameter in model.parameters():
        if id(parameter) in memo:  # Parameter.__deepcopy__ leaves its attributes behind
            vars(memo[id(parameter)]).update(vars(parameter))
    for module in twin.modules():
        for name, value in vars(module).items():
            if isinstance(value, types.FunctionType) and value.__closure__:
                vars(module)[name] = _rebound(value, memo)
            elif isinstance(value, types.MethodType) and id(value.__self__) in memo:
                vars(module)[name] = types.MethodType(value.__func__, memo[id(value.__self__)])
    return twin


def _rebound(function: types.FunctionType, memo: dict[int, Any]) -> types.FunctionType:
    cells = tuple(_rebound_cell(cell, memo) for cell in function.__closure__ or ())
    twin = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


def _rebound_cell(cell: types.CellType, memo: dict[int, Any]) -> types.CellType:
    try:
        held = cell.cell_contents
    except ValueError:  # an empty cell
        return cell
    if isinstance(held, types.MethodType) and id(held.__self__) in memo:
        return types.CellType(types.MethodType(held.__func__, memo[id(held.__self__)]))
    if isinstance(held, types.FunctionType) and held.__closure__:
        return types.CellType(_rebound(held, memo))
    is_copied = isinstance(held, (nn.Module, torch.Tensor)) and id(held) in memo
    return types.CellType(memo[id(held)]) if is_copied else cell
