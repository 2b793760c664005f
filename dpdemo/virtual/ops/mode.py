"""The dispatch mode: every operator of a thread passes here, below autograd and autocast.

PyTorch's dispatch modes are thread-local; `replicas.py` enters one in each new thread. A mode is called with
the operators that remain when composite ones are taken apart, in the forward pass and in the backward pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dpdemo.virtual.labels import as_cpp, has_operators_of_its_own
from dpdemo.virtual.ops import listening
from dpdemo.virtual.ops.dispatch import choose

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpdemo.virtual.ops.special import Action
    from dpdemo.virtual.state import Session

_FAKING = (torch._C._TorchDispatchModeKey.FAKE, torch._C._TorchDispatchModeKey.FUNCTIONAL)
_num_modes_below: Any = torch._C._len_torch_dispatch_stack
_asks_python: Any = torch._C._has_torch_function
# The action of each operator met so far, by its `id` (an operator's own hash is a function in Python); the
# operator is kept with it, so that no other one gets its `id`.
actions: dict[int, tuple[Any, Action]] = {}


class VirtualGpuMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs one thread's operators on virtual GPUs."""

    supports_higher_order_operators = True

    def __init__(self, session: Session) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.session = session

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep PyTorch from importing torch._dynamo (about a second) at the first operator."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if types or _num_modes_below():
            if any(torch._C._get_dispatch_mode(key) is not None for key in _FAKING):
                return func(*args, **(kwargs or {}))  # a mode below makes up tensors and devices
            if any(map(has_operators_of_its_own, types)):
                if id(func) in listening.wrapped:
                    listening.wrapped[id(func)](args, kwargs or {})
                return NotImplemented  # a subclass with operators of its own: its parts pass here
        try:
            action = actions[id(func)][1]
        except KeyError:
            action = choose(func)
            actions[id(func)] = func, action
        if _asks_python(args):
            return as_cpp(action)(self.session, func, args, kwargs or {})
        return action(self.session, func, args, kwargs or {})
