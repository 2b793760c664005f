"""`torch.cuda.nccl`'s collectives within one process (torch/csrc/cuda/nccl.cpp); `reduce` is in comm.py.

All of them write into tensors that are given, one on each GPU.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.cuda.nccl

from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.transfer import device_index, move

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

_OPERATIONS: dict[int, Callable[[Tensor, Tensor], Tensor]] = {
    0: torch.add,  # ncclSum; the others in nccl.h's order
    1: torch.mul,
    2: torch.maximum,
    3: torch.minimum,
}


def _check(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], input_factor: int, output_factor: int
) -> None:
    """Refuse what `check_inputs` there refuses."""
    if len(inputs) != len(outputs):
        raise RuntimeError(
            f"number of inputs ({len(inputs)}) must equal the number of outputs ({len(outputs)})"
        )
    homes = [device_index(tensor) for tensor in inputs]
    if None in homes:
        raise RuntimeError("input and output elements have to be cuda dense Tensors")
    if len(set(homes)) < len(homes):
        raise RuntimeError("inputs must be on unique devices")
    if homes != [device_index(tensor) for tensor in outputs]:
        raise RuntimeError("input and output must be on the same device")
    for given, output in zip(inputs, outputs, strict=True):
        if given.numel() * input_factor != output.numel() * output_factor:
            raise RuntimeError("output tensor size mismatch")


def _reduced(inputs: Sequence[Tensor], op: int) -> Tensor:
    if op not in _OPERATIONS:
        raise UnsupportedOpError(f"torch.cuda.nccl: reduction {op}; 0 to 3 are known: sum, product, max, min")
    home = device_index(inputs[0])
    return functools.reduce(_OPERATIONS[op], [move(tensor.detach(), home) for tensor in inputs])


def _write(outputs: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for output, value in zip(outputs, values, strict=True):
            output.copy_(move(value, device_index(output)).view_as(output))


def all_reduce(inputs: Sequence[Tensor], outputs: Sequence[Tensor] | None, op: int = 0, *_: Any) -> None:
    """Write the sum of all inputs, or what `op` makes of them, into each output."""
    outputs = outputs or inputs
    _check(inputs, outputs, 1, 1)
    _write(outputs, [_reduced(inputs, op)] * len(outputs))


def broadcast(tensors: Sequence[Tensor], root: int = 0, *_: Any) -> None:
    """Write the tensor at `root` into all others."""
    _check(tensors, tensors, 1, 1)
    others = [tensor for at, tensor in enumerate(tensors) if at != root]
    _write(others, [tensors[root].detach()] * len(others))


def all_gather(inputs: Sequence[Tensor], outputs: Sequence[Tensor], *_: Any) -> None:
    """Write all inputs, one after the other, into each output."""
    _check(inputs, outputs, len(inputs), 1)
    home = device_index(inputs[0])
    together = torch.cat([move(tensor.detach(), home).reshape(-1) for tensor in inputs])
    _write(outputs, [together] * len(outputs))


def reduce_scatter(inputs: Sequence[Tensor], outputs: Sequence[Tensor], op: int = 0, *_: Any) -> None:
    """Reduce all inputs, and write a part of the result into each output."""
    _check(inputs, outputs, 1, len(inputs))
    _write(outputs, _reduced(inputs, op).reshape(-1).chunk(len(outputs)))
