"""TorchScript's `x.device` and `x.is_cuda`: its interpreter asks C++, to which every tensor is on the CPU.

So in what is scripted or loaded inside a block, and in what was scripted before, these are replaced by
operators of our own, which ask Python. A file that is saved, and what outlives the block, has PyTorch's own
again. (What has run before the block keeps the plan that PyTorch made then.)
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.jit._recursive

from dpdemo.virtual.standins import placed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_OURS = "dpdemo_virtual"
_TYPES = {"device": "Device", "is_cuda": "bool", "is_cpu": "bool"}
_library: Any = torch.library.Library(_OURS, "DEF")  # type: ignore[no-untyped-call]
for _name, _type in _TYPES.items():
    _library.define(f"{_name}(Tensor x) -> {_type}")
    _library.impl(_name, lambda x, name=_name: getattr(x, name), "CompositeImplicitAutograd")
_rewritten: list[Any] = []  # the graphs of what was scripted so far, or loaded in this block
_scripted: Any = torch.jit._state._python_cu


def _rewrite(graphs: Iterable[Any], before: str, after: str) -> None:
    """Let each question of namespace `before` be asked of `after`."""
    for graph in graphs:
        for name in _TYPES:
            for node in graph.findAllNodes(f"{before}::{name}", True):
                asked = graph.create(f"{after}::{name}", list(node.inputs()), 1)
                asked.output().setType(node.output().type())
                asked.insertBefore(node)
                node.output().replaceAllUsesWith(asked.output())
                node.destroy()


def _take(graphs: Iterable[Any]) -> None:
    taken = list(graphs)
    _rewrite(taken, "prim", _OURS)
    _rewritten.extend(taken)


def compiling(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build the stand-in for `torch._C._jit_script_compile`, which scripts a function."""

    @functools.wraps(original)
    def compile_function(*args: Any, **kwargs: Any) -> Any:
        function = original(*args, **kwargs)
        _take([function.graph])
        return function

    return compile_function


def creating(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build the stand-in for `create_script_module_impl`, which scripts a module and those in it."""

    @functools.wraps(original)
    def create(*args: Any, **kwargs: Any) -> Any:
        module = original(*args, **kwargs)
        _take(_graphs_of(module))
        return module

    return create


def loading(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build the stand-in for `torch.jit.load`."""

    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, _extra_files: Any = None, *options: Any, **named: Any) -> Any:
        read = functools.partial(original, **named)
        loaded = placed.load(read, f, map_location, _extra_files, *options)
        for module in loaded.modules():
            _take(_graphs_of(module))
        return loaded

    return load


def _graphs_of(module: Any) -> list[Any]:
    methods = map(module._c._get_method, module._c._method_names()) if hasattr(module, "_c") else ()
    return [method.graph for method in methods]


def saving(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build the stand-in for a method that saves: any PyTorch must be able to load the file."""

    @functools.wraps(original)
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        modules = self.modules() if isinstance(self, torch.nn.Module) else ()
        own = [graph for module in modules for graph in _graphs_of(module)] or [self.graph]
        placed.note(self, own, kwargs)
        graphs = [*_rewritten, *own]
        _rewrite(graphs, _OURS, "prim")
        try:
            return original(self, *args, **kwargs)
        finally:
            _rewrite(graphs, "prim", _OURS)

    return save


@contextlib.contextmanager
def questions_given_back() -> Iterator[None]:
    """Give what was scripted PyTorch's own questions back at the end of a `with` block."""
    _rewritten.extend(function.graph for function in _scripted.get_functions())
    _rewrite(_rewritten, "prim", _OURS)
    try:
        yield
    finally:
        _rewrite(_rewritten, _OURS, "prim")
        _rewritten.clear()
