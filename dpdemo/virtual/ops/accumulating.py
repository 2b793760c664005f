"""Gradients that meet: autograd adds the later one into the memory of the earlier one.

`accumulate` (torch/csrc/autograd/input_buffer.cpp) does so if nothing else refers to the earlier one. Below a
dispatch mode it takes every tensor for one of a subclass, and adds them into new memory. So the addition is
made in place here, where C++ asks for it and would do so on a real GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from dpdemo.virtual.ops.provenance import reference_counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.virtual.ops.special import Action
    from dpdemo.virtual.state import Session

_reused: list[tuple[int, ...]] = []
"""The holders of a gradient that autograd reuses, once they are measured."""
_count_in_cpp: Any = getattr(torch.Tensor, "_use_count", None)
ADD, ADD_IN_PLACE = torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor


def accumulating(add: Action, add_in_place: Action) -> Action:
    """Return the action of an addition, which is in place where autograd reuses a gradient's memory."""

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch._C._current_graph_task_id() != -1 and not kwargs and _reuses_first(args):
            return add_in_place(session, ADD_IN_PLACE, args, kwargs)
        return add(session, func, args, kwargs)

    return act


def _reuses_first(args: tuple[Any, ...]) -> bool:
    if torch.is_grad_enabled() or not (found := _holders(args)) or found not in _reused:
        return False
    first, second = args
    return first.layout is torch.strided and first.shape == second.shape and first.dtype == second.dtype


def _holders(args: tuple[Any, ...]) -> tuple[int, ...]:
    """Count what refers to both operands in Python; to the first one in C++; and to its storage.

    Nothing is returned where that cannot be counted: additions are made into new memory then.
    """
    of_python = [count for _, count in reference_counts(args, {})]
    if len(of_python) < 2 or type(args[0]) is not torch.Tensor or _count_in_cpp is None:
        return ()
    storage = args[0].untyped_storage()
    return *of_python, _count_in_cpp(args[0]), torch._C._storage_Use_Count(storage._cdata)


class _Probe(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the holders of two gradients that nothing else refers to."""

    found: tuple[int, ...] = ()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep PyTorch from importing torch._dynamo (about a second)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is ADD:
            self.found = _holders(args)
        return func(*args, **(kwargs or {}))


def measure(run_engine: Callable[..., object]) -> None:
    """Measure the holders of a gradient that autograd reuses, once; they depend on Python and on PyTorch."""
    if _reused:
        return
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.enable_grad():
        number = torch.ones(2, device="cpu", requires_grad=True)
        ends, gradient = (number.neg(), number.neg()), torch.ones(2, device="cpu")
        with _Probe() as probe:  # type: ignore[no-untyped-call]
            run_engine(ends, (gradient, gradient), False, False, (number,), False, accumulate_grad=False)
    _reused.append(probe.found)
