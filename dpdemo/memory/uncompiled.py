"""Keep PyTorch's compiler and sympy from being imported for a prediction, which uses neither.

Optimizers, and those of PyTorch's kernels without numbers that are written in Python, call functions that
tell the compiler to leave them alone (`torch/_compile.py`, `torch/optim/optimizer.py`), and these import it.
The kernels also ask whether a size is symbolic (`torch._check`, `elementwise_dtypes`), which imports sympy
and `torch.fx.experimental.symbolic_shapes`: together two fifths of what a prediction costs. Here stand-ins
answer what is asked of plain numbers. Whoever asks for anything else, such as a model that compiles a part
of itself, gets the module, which then stays, and the stand-in hands everything on to it.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import weakref
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_COMPILER, _SYMPY, _SHAPES = "torch._dynamo", "sympy", "torch.fx.experimental.symbolic_shapes"
_FUNCTIONS, _PRIMS = "torch.utils._sympy.functions", "torch._prims_common"
_LONE = {_SHAPES, _FUNCTIONS}  # modules without parts
_KEPT = "__dynamo_disable"
"""The attribute of a function in which `torch/_compile.py` caches the disabled one."""
_PLAIN = (bool, int, float)


class _StandIn(ModuleType):
    """Stands in for a module until somebody asks for more than it has."""

    def __init__(self, name: str, **given: Any) -> None:
        super().__init__(name)
        self._lock = threading.RLock()
        self._given: list[str] = []
        self.give(given)

    def __getattr__(self, name: str) -> Any:
        # `inspect` asks every module for such names; the import of a part asks its parent for __path__
        if name.startswith("__") and (name != "__path__" or self.__name__ in _LONE):
            raise AttributeError(name)
        return getattr(self.real(), name)

    def give(self, attributes: dict[str, Any]) -> None:
        """Have some attributes, until the module itself is asked for."""
        self._given += attributes
        vars(self).update(attributes)

    def real(self) -> ModuleType:
        """Leave, and return the module itself."""
        self.give_way()
        return importlib.import_module(self.__name__)

    def give_way(self) -> None:
        """Leave, so that whoever imports the module from now on gets it."""
        with self._lock:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            parent, _, name = self.__name__.rpartition(".")
            holder = vars(sys.modules[parent]) if parent in sys.modules else {}
            if holder.get(name) is self:
                del holder[name]
            while self._given:
                vars(self).pop(self._given.pop(), None)


class _Part:
    """A part of the compiler, with what is asked of it where nobody compiles; the rest is the compiler's."""

    def __init__(self, compiler: _StandIn, name: str, **given: Any) -> None:
        vars(self).update(given, _compiler=compiler, _name=name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(getattr(self._compiler.real(), self._name), name)


class _NotCompiling(_StandIn):
    """Stands in for `torch._dynamo` as long as nobody compiles."""

    def __init__(self) -> None:
        super().__init__(
            _COMPILER,
            # checkpoints read and set this one around each recomputation
            config=_Part(self, "config", error_on_nested_fx_trace=True, patch=self._patch),
            # a process group that begins clears the cache of rules, which is empty
            trace_rules=_Part(self, "trace_rules", clear_lru_cache=lambda: None),
            # DistributedDataParallel asks at construction; this is the compiler's default
            utils=_Part(self, "utils", get_optimize_ddp_mode=lambda: "ddp_optimizer"),
        )
        self._left_alone: weakref.WeakSet[Any] = weakref.WeakSet()  # a closure may hold tensors

    def disable(self, fn: Callable[..., Any], *_: object, **__: object) -> Callable[..., Any]:
        """Leave a function alone: it is called as it is."""
        self._left_alone.add(fn)
        return fn

    def graph_break(self, *_: object, **__: object) -> None:
        """Break no graph, for there is none."""

    def _patch(self, *args: Any, **changes: Any) -> Any:
        """Set nothing where nobody compiles."""
        if [*changes] == ["error_on_nested_fx_trace"] and sys.modules.get(_COMPILER) is self:
            return contextlib.nullcontext()
        return self.real().config.patch(*args, **changes)

    def give_way(self) -> None:
        """Leave, and forget the functions that were left alone."""
        with self._lock:
            super().give_way()
            while self._left_alone:
                vars(self._left_alone.pop()).pop(_KEPT, None)


class _Nothing:
    """A class that nothing is of: what is no symbol is none of sympy's."""


class _Functions(_StandIn):
    """Stands in for functions of sympy's that one of PyTorch's kernels imports, and does not use."""

    def __getattr__(self, name: str) -> Any:
        if name == "Max" and sys._getframe(1).f_globals.get("__name__") == _PRIMS:  # noqa: SLF001 - who asks
            return _Nothing
        return super().__getattr__(name)


def _sympy() -> _StandIn:
    return _StandIn(_SYMPY, Basic=_Nothing, Expr=_Nothing, Symbol=_Nothing)


def _shapes() -> _StandIn:
    found = _StandIn(_SHAPES)

    def of_numbers(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*args: Any, **kwargs: Any) -> Any:
            if sys.modules.get(_SHAPES) is found and all(map(_is_plain, args)):
                return answer(*args)
            return getattr(found.real(), name)(*args, **kwargs)  # a symbol, or somebody kept this function

        return ask

    found.give({name: of_numbers(name, answer) for name, answer in _ANSWERS.items()})
    return found


def _is_plain(value: Any) -> bool:
    """Return whether a value is a number, a shape of numbers, or a tensor of such a shape."""
    if isinstance(value, torch.Tensor):
        value = tuple(value.shape)
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN


def _truth(value: Any, *_: object) -> bool:
    return bool(value)


def _itself(value: Any, *_: object) -> Any:
    return value


def _are_equal(first: Any, second: Any) -> bool:
    if isinstance(first, (tuple, list)) and isinstance(second, (tuple, list)):
        return [*first] == [*second]
    return bool(first == second)


_IS_TRUE = (
    *("expect_true", "guard_bool", "guard_size_oblivious", "guard_or_false", "guard_or_true"),
    *("statically_known_true", "definitely_true"),
)
_ANSWERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_IS_TRUE, _truth),
    **dict.fromkeys(("guard_int", "guarding_hint_or_throw", "optimization_hint"), _itself),
    **dict.fromkeys(("free_symbols", "free_unbacked_symbols"), lambda *_: set()),
    "has_free_unbacked_symbols": lambda *_: False,
    "has_guarding_hint": lambda *_: True,
    "is_nested_int": lambda *_: False,
    "statically_known_false": lambda value: not value,
    "sym_and": lambda *values: all(values),
    "sym_eq": _are_equal,
    "sym_or": lambda *values: any(values),
}
"""What functions of `symbolic_shapes` return for plain numbers, none of which is a symbol."""
_MAKERS: dict[str, Callable[[], _StandIn]] = {
    _COMPILER: _NotCompiling,
    _SYMPY: _sympy,
    _SHAPES: _shapes,
    _FUNCTIONS: lambda: _Functions(_FUNCTIONS),
}


@contextlib.contextmanager
def not_compiling() -> Iterator[None]:
    """Keep PyTorch's compiler and sympy from being loaded by who does not use them, in a `with` block."""
    made = [make() for name, make in _MAKERS.items() if name not in sys.modules]
    for stand_in in made:
        sys.modules[stand_in.__name__] = stand_in
    try:
        yield
    finally:
        for stand_in in made:
            stand_in.give_way()
