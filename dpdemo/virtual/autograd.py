"""Gradients of Python's autograd functions: each on the device of its output, and computed with that device current.

Where an output of a function took no part in the loss, C++ hands its `backward` a gradient of zeros, which it makes on
the CPU. On a real GPU they are on the output's device, and DataParallel's `Broadcast` relies on that. So `apply` notes
where its outputs are, and `backward` labels what came without a label.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from dpdemo.virtual.labels import stamp
from dpdemo.virtual.state import the_session
from dpdemo.virtual.transfer import device_index

_apply: Any = torch.autograd.Function.__dict__["apply"].__func__
_backward: Any = BackwardCFunction.__dict__["apply"]
_HOMES = "_virtual_gpu_homes"


def apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
    """Stand in for `Function.apply`: note where the outputs are."""
    result = _apply(cls, *args, **kwargs)
    outputs = result if isinstance(result, tuple) else (result,)
    homes = [device_index(output) if isinstance(output, torch.Tensor) else None for output in outputs]
    if any(home is not None for home in homes):
        for output in outputs:
            node = output.grad_fn if isinstance(output, torch.Tensor) else None
            if isinstance(node, BackwardCFunction):
                node.__dict__.setdefault(_HOMES, homes)
    return result


def backward(self: Any, *gradients: Any) -> Any:
    """Stand in for `BackwardCFunction.apply`, through which C++ calls every Python `backward`."""
    homes = self.__dict__.get(_HOMES)
    if homes is None:
        return _backward(self, *gradients)
    session = the_session()
    for gradient, home in zip(gradients, homes, strict=False):
        if home is not None and isinstance(gradient, torch.Tensor) and device_index(gradient) is None:
            stamp(gradient, session, home)
    before = session.current.index
    session.current.index = next(home for home in homes if home is not None)
    try:
        return _backward(self, *gradients)
    finally:
        session.current.index = before
