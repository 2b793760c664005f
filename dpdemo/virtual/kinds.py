"""The purpose of a storage, and the event that shows it.

    parameters, buffers   a module that holds them was moved to a GPU, or made there
    replica copies        `broadcast_coalesced` made them
    inputs                they came from the host, or `scatter` cut them
    gathered outputs      `gather` put them together in a forward pass
    activations           they were still there when a backward pass began
    gradients             a backward pass ended, and a module's parameter has them
    optimizer state       an optimizer made a step, and has them in its state
    temporaries           all else

A storage may be taken for one thing first and for another later: what it is last is what counts.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from dpdemo.virtual.applying import stands_in
from dpdemo.virtual.blocks import Kind
from dpdemo.virtual.labels import label_of
from dpdemo.virtual.ops.meta import take_numbers
from dpdemo.virtual.state import the_session

_WHY = "the ledger tells parameters and buffers from other tensors"
_grad: Any = torch._C.TensorBase.grad
_apply: Any = nn.Module._apply
_register_buffer: Any = nn.Module.register_buffer
_register_parameter: Any = nn.Module.register_parameter


def mark(tensor: object, kind: Kind) -> bool:
    """Note what a tensor's storage is for; return whether it is on a GPU at all."""
    label = label_of(tensor, the_session().key) if isinstance(tensor, torch.Tensor) else None
    shard = getattr(tensor, "_local_tensor", None)  # of a DTensor, which itself takes no bytes
    is_marked = shard is not None and mark(shard, kind)
    if label is None:
        return is_marked
    label.mark(kind)
    return True


def mark_all(tensors: Iterable[object], kind: Kind) -> bool:
    """Note what the storage of each tensor is for; return whether any is on a GPU."""
    marked = [mark(tensor, kind) for tensor in tensors]  # all of them: `any` would stop at the first
    return any(marked)


def in_backward() -> bool:
    """Return whether this thread is inside a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)


def mark_forward(tensors: Iterable[object], kind: Kind) -> None:
    """Mark tensors, unless they are gradients on their way."""
    if not in_backward():
        mark_all(tensors, kind)


@stands_in(nn.Module, "_apply", why=_WHY)
def apply_to_module(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """Move a module (`.to()` and the like), and mark its parameters and buffers."""
    session = the_session()
    if session.is_meta:
        take_numbers(self)
    with session.current.having("is_moving", True):
        moved: nn.Module = _apply(self, *args, **kwargs)
    _note_module(self)
    return moved


@stands_in(nn.Module, "register_parameter", why=_WHY)
def register_parameter(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
    """Register a parameter, and mark it if it was made on a GPU."""
    _register_parameter(self, name, param)
    if mark(param, Kind.PARAMETER):
        the_session().modules.add(self)


@stands_in(nn.Module, "register_buffer", why=_WHY)
def register_buffer(self: nn.Module, name: str, tensor: torch.Tensor | None, persistent: bool = True) -> None:
    """Register a buffer, and mark it if it was made on a GPU."""
    _register_buffer(self, name, tensor, persistent)
    label = label_of(tensor, the_session().key) if isinstance(tensor, torch.Tensor) else None
    if label is not None and label.kind is not Kind.REPLICA:  # `replicate` calls this too
        label.mark(Kind.BUFFER)


def _note_module(module: nn.Module) -> None:
    if mark_all(module._parameters.values(), Kind.PARAMETER):
        the_session().modules.add(module)
    mark_all(module._buffers.values(), Kind.BUFFER)


def noting_blocks(original: Callable[..., None]) -> Callable[..., None]:
    """Mark the whole parameters that `FSDPParam.init_all_gather_outputs` makes, and the shard of each."""

    @functools.wraps(original)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        mark_all(self.all_gather_outputs, Kind.GATHERED_BLOCK)
        mark(getattr(self, "_sharded_param_data", None), Kind.PARAMETER)

    return make


after_backward: list[Callable[[], object]] = []
"""Each is called once a backward pass has ended."""


def around_backward(run: Callable[[], Any]) -> Any:
    """Run backward. Live temporaries become activations first; parameters' `.grad` become gradients after."""
    if in_backward():
        return run()
    session = the_session()
    if session.ledger.accounts is not None:
        session.ledger.accounts.keep_temporaries()
    result = run()
    for listener in after_backward:
        listener()
    for module in tuple(session.modules):
        for parameter in module._parameters.values():
            if parameter is not None and parameter.is_leaf:
                _mark_gradient(parameter, session.key)
    return result


def _mark_gradient(parameter: torch.Tensor, key: str) -> None:
    """Mark a parameter's gradient: past the attribute in Python, which would label one that C++ made."""
    gradient: torch.Tensor | None = _grad.__get__(parameter)
    if gradient is None:
        return
    try:
        label = gradient.untyped_storage().__dict__.get(key)
    except (NotImplementedError, RuntimeError, ValueError):  # it has no storage of its own
        label = None
    if label is None:
        mark(parameter.grad, Kind.GRADIENT)
    elif label.kind is not Kind.GRADIENT:
        label.mark(Kind.GRADIENT)


@contextlib.contextmanager
def optimizers_watched() -> Iterator[None]:
    """Mark the state of every optimizer that makes a step, for the length of a `with` block."""
    handle = register_optimizer_step_post_hook(_note_optimizer)
    try:
        yield
    finally:
        handle.remove()


def _note_optimizer(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    key = the_session().key
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            _mark_gradient(parameter, key)
    for state in optimizer.state.values():
        mark_all(state.values(), Kind.OPTIMIZER_STATE)
