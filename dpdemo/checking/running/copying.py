"""Fresh copies of the user's model, so that the model itself is never run.

`copy.deepcopy` does it, but for three things: a function that closes over the model goes on using the
original, and neither a tensor that is not a leaf nor a lock can be copied. All three are copied here; for the
rest the factory is called again.
"""

import contextlib
import copy
import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from dpdemo.checking.observing.holders import is_changeable, keys_of, walk
from dpdemo.checking.observing.state import INTERNAL
from dpdemo.checking.running.batches import brought_along
from dpdemo.errors import UsageError
from dpdemo.models.failure import users_code
from dpdemo.virtual.applying import Patch, applied


class ModelSource:
    """Hands out models that are alike in every number."""

    def __init__(self, prototype: nn.Module, rebuild: Callable[[], nn.Module] | None = None) -> None:
        self.prototype = prototype
        self._rebuild = rebuild
        self.copies = True
        """Whether models are copies of the given one, rather than built again."""
        self._placed: nn.Module | None = None
        self._along: Sequence[str] = ()

    def rebuild_from_now_on(self) -> bool:
        """Call the factory for each model instead of copying; return whether that is possible, and new."""
        is_new = self._rebuild is not None and self.copies
        self.copies = self.copies and not is_new
        return is_new

    def bring_along(self, paths: Sequence[str]) -> None:
        """Put on the GPU of each copy from now on what a model holds at these paths, too."""
        self._along, self._placed = paths, None

    def fresh(self) -> nn.Module:
        """Make a copy of the model as it was given.

        Raises:
            UsageError: if it can neither be copied nor built again.

        """
        try:
            if self.copies:
                with users_code():
                    return deep_copy(plain(self.prototype))
        except Exception as error:
            if self._rebuild is None:
                raise UsageError(
                    f"expected a model that can be copied, got {type(error).__name__}: {error} - "
                    f"from copy.deepcopy({type(self.prototype).__name__})",
                    hint="give a function that builds the model instead of the model",
                ) from error
        assert self._rebuild is not None  # noqa: S101 - checked above
        model = self._rebuild()
        model.load_state_dict(self.prototype.state_dict())
        return model

    def fresh_on(self, gpu: torch.device) -> nn.Module:
        """Make a copy on a GPU: of one that was moved there, since moving each costs as much as copying it.

        Raises:
            UsageError: if it can neither be copied nor built again, or cannot be moved.

        """
        parts = (*self.prototype.parameters(), *self.prototype.buffers())
        if self.copies and (self._along or any(part.device != gpu for part in parts)):
            if self._placed is None:
                self._placed = self._moved(gpu)
            with contextlib.suppress(Exception), users_code():
                return deep_copy(self._placed)
        return self._moved(gpu)

    def _moved(self, gpu: torch.device) -> nn.Module:
        model = self.fresh()
        try:
            with users_code():
                model = model.to(gpu)
        except Exception as error:
            raise UsageError(
                f"expected a model that moves to a GPU, got {type(error).__name__}: {error}",
                key="model",
                hint='this is not about DataParallel: `.to("cuda:0")` fails',
            ) from error
        return brought_along(model, self._along, gpu)


def plain(model: nn.Module) -> nn.Module:
    """Take a model out of `torch.compile`: what is compiled leads back to the original in every replica."""
    original = vars(model).get("_modules", {}).get("_orig_mod")
    return original if isinstance(original, nn.Module) else model


def deep_copy(model: nn.Module) -> nn.Module:
    """Copy a model together with the functions that close over it, wherever it holds them."""
    memo: dict[int, object] = {}
    held = list(_held_in(model))
    for tensor in held:
        if isinstance(tensor, torch.Tensor) and not tensor.is_leaf:  # a forward left it, as of weight norm
            memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    copying = _FunctionCopies(model)
    copiers = {
        types.FunctionType: copying.copy,
        weakref.ref: copying.copy_reference,  # a child may lead to its parent so
        functools._lru_cache_wrapper: copying.copy_cached,
        **_LOCKS,
    }
    why = "a copy of a model leads to no part of the original"
    with applied(Patch(_DISPATCH, kind, copier, why) for kind, copier in copiers.items()):
        twin: nn.Module = copy.deepcopy(model, memo)
    _rename_keys(model, held, memo)
    for module in twin.modules():
        if vars(module).get("_compiled_call_impl") is not None:
            module._compiled_call_impl = None
        for name, child in module._modules.items():
            if child is not None and (original := plain(child)) is not child:
                module._modules[name] = original
    for parameter in model.parameters():
        if id(parameter) in memo:  # Parameter.__deepcopy__ leaves its attributes behind
            vars(memo[id(parameter)]).update(vars(parameter))
    return twin


_DISPATCH: object = vars(copy)["_deepcopy_dispatch"]
_WITHOUT_TENSORS = (bool, int, float, str, type(None))


def _copy_condition(condition: threading.Condition, memo: dict[int, object]) -> threading.Condition:
    """Make a condition of the copied lock: its own attributes are methods of the one that it was made of."""
    return threading.Condition(copy.deepcopy(condition._lock, memo))  # type: ignore[attr-defined]


_LOCKS: dict[type, Callable[..., object]] = {
    type(threading.Lock()): lambda _, __: threading.Lock(),
    type(threading.RLock()): lambda _, __: threading.RLock(),
    threading.Condition: _copy_condition,
}
"""How to copy what threads wait for, which `copy.deepcopy` cannot; queues, events and barriers hold these."""


def _held_in(model: nn.Module) -> Iterator[object]:
    """List what modules hold besides modules and parameters."""
    for module in model.modules():
        for name, value in vars(module).items():
            is_empty = isinstance(value, dict) and not value
            if is_empty or name in {"_modules", "_parameters"} or type(value) in _WITHOUT_TENSORS:
                continue  # modules come by themselves, and parameters are leaves
            yield from (part.value for part in walk(value))


def _rename_keys(model: nn.Module, held: Sequence[object], memo: dict[int, object]) -> None:
    """Rename the keys of copied dicts and sets that are the original's modules or tensors, or their ids.

    `copy.deepcopy` copies neither numbers nor the keys of a weak dict.
    """
    parts = (*model.modules(), *model.parameters(), *model.buffers())
    twins = {id(part): memo[id(part)] for part in parts if id(part) in memo}
    for value in held:
        twin: Any = memo.get(id(value))
        renamed = {
            key: id(part) if type(key) is int else part
            for key in keys_of(twin)
            if (part := twins.get(key if type(key) is int else id(key))) is not None
        }
        if renamed and not isinstance(twin, frozenset):
            if hasattr(twin, "items"):
                new: list[object] = [(renamed.get(key, key), part) for key, part in twin.items()]
            else:
                new = [renamed.get(key, key) for key in twin]
            twin.clear()
            twin.update(new)


class _FunctionCopies:
    """Copies functions that close over a part of one model; `copy.deepcopy` takes functions as they are."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    @functools.cached_property
    def _parts(self) -> set[int]:
        modules = list(self._model.modules())
        held = (value for module in modules for name, value in vars(module).items() if name not in INTERNAL)
        parts = [*modules, *self._model.parameters(), *self._model.buffers(), *filter(is_changeable, held)]
        return {id(part) for part in parts}

    def copy(self, function: types.FunctionType, memo: dict[int, object]) -> object:
        """Copy a function whose closure or defaults lead to the model, and leave any other."""
        if not self._leads_to_model(function):
            return function
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        twin = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
        )
        memo[id(function)] = twin  # first: it may close over itself
        vars(twin).update(vars(function))
        twin.__qualname__, twin.__module__ = function.__qualname__, function.__module__
        twin.__kwdefaults__ = function.__kwdefaults__
        twin.__defaults__ = tuple(self._part(value, memo) for value in function.__defaults__ or ()) or None
        for cell, old in zip(cells, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell
                cell.cell_contents = self._part(old.cell_contents, memo)
        return twin

    def copy_cached(self, cached: "functools._lru_cache_wrapper[Any]", memo: dict[int, object]) -> object:
        """Make a function that keeps its results anew, of the copy, where it leads to the model."""
        if not self._leads_to_model(cached):
            return cached
        return functools.lru_cache(**cached.cache_parameters())(copy.deepcopy(cached.__wrapped__, memo))

    def copy_reference(self, reference: "weakref.ref[Any]", memo: dict[int, object]) -> object:
        """Make a weak reference to the copy of what is the model's, and leave any other."""
        part = reference()
        return weakref.ref(copy.deepcopy(part, memo)) if id(part) in self._parts else reference

    def _part(self, value: object, memo: dict[int, object]) -> object:
        return copy.deepcopy(value, memo) if self._leads_to_model(value) else value

    def _leads_to_model(self, value: object) -> bool:
        """Whether it holds a part of the model, or a module outside of it."""
        return any(id(part.value) in self._parts or isinstance(part.value, nn.Module) for part in walk(value))
