"""Operators that are one kernel on CUDA and many on the CPU: they must hold what CUDA's kernel holds.

The numbers are those of the CPU's operators. But what these make on the way is no part of what a GPU would
hold: attention's weights, the states of each time step. So they run uncounted, and without a record for
autograd: beside its operands and its results `Fused` keeps only the bytes that CUDA's kernel keeps (its
*reserve*), and `backward` runs the operators again to differentiate them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from dpdemo.virtual.labels import label_of
from dpdemo.virtual.state import the_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor


@dataclass(frozen=True)
class Kernel:
    """One of CUDA's kernels.

    `run` computes the results from the tensors by the CPU's operators; `like` makes results without numbers;
    `gradient_like` makes room for the gradient of the tensor at some place, in the kernel's own layout;
    `reserve_bytes` are kept for the backward pass, `scratch_bytes` are needed while that runs.
    """

    run: Callable[..., tuple[Tensor, ...]]
    like: Callable[..., tuple[Tensor, ...]]
    reserve_bytes: int
    scratch_bytes: int = 0
    is_random: bool = False
    gradient_like: Callable[[int, Tensor], Tensor] = lambda _, tensor: torch.empty_like(tensor)


def is_plain() -> bool:
    """Tell whether only backward passes are recorded: `torch.func` and forward mode take operators apart."""
    functorch: Any = torch._C._functorch
    return forward_ad._current_level < 0 and functorch.peek_interpreter_stack() is None


def run_fused(kernel: Kernel, *tensors: Tensor | None) -> tuple[Tensor, ...]:
    """Run a kernel on tensors that are on one GPU."""
    results: tuple[Tensor, ...] = Fused.apply(kernel, *tensors)  # type: ignore[no-untyped-call]
    return results


class Fused(torch.autograd.Function):
    """A kernel, as autograd sees it on CUDA: one operation."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        """Compute the results, and keep what CUDA's kernel keeps."""
        first = next(tensor for tensor in tensors if tensor is not None)
        ctx.kernel, ctx.numbers = kernel, _random_state(first) if kernel.is_random else None
        results = _results(kernel, tensors)
        if any(ctx.needs_input_grad):
            reserve = first.new_empty(kernel.reserve_bytes, dtype=torch.uint8)
            ctx.save_for_backward(*tensors, results[0], reserve)  # CUDA's kernels keep no further result
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Run the operators again and differentiate them."""
        kernel: Kernel = ctx.kernel
        tensors = ctx.saved_tensors[: len(ctx.needs_input_grad) - 1]
        wanted = [index for index, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        first = next(tensor for tensor in tensors if tensor is not None)
        if torch.is_grad_enabled():  # for the gradient of a gradient, which CUDA's kernels do not have
            with _random_state_set(first, ctx.numbers):
                return None, *_spread(_differentiate(kernel, tensors, wanted, gradients), wanted, tensors)
        scratch = first.new_empty(kernel.scratch_bytes, dtype=torch.uint8)
        if the_session().is_meta:
            found: list[Tensor | None] = [kernel.gradient_like(index, tensors[index]) for index in wanted]
        else:
            leaves = [
                tensor.detach().requires_grad_(needed) if tensor is not None else None
                for tensor, needed in zip(tensors, ctx.needs_input_grad[1:], strict=True)
            ]
            with _random_state_set(first, ctx.numbers), uncounted():
                found = _differentiate(kernel, leaves, wanted, gradients)
                found = [_laid_out(kernel, *pair) for pair in zip(wanted, found, strict=True)]
            _count(found)
        del scratch
        return None, *_spread(found, wanted, tensors)


def _results(kernel: Kernel, tensors: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    if the_session().is_meta:
        return kernel.like(*tensors)
    with uncounted():
        results = kernel.run(*tensors)
    _count(results)
    return results


def _differentiate(
    kernel: Kernel,
    tensors: Sequence[Tensor | None],
    wanted: Sequence[int],
    gradients: Sequence[Tensor | None],
) -> list[Tensor | None]:
    further = torch.is_grad_enabled()
    with torch.enable_grad():
        results = kernel.run(*tensors)
    pairs = [(result, gradient) for result, gradient in zip(results, gradients, strict=True)
             if gradient is not None and result.requires_grad]  # fmt: skip
    inputs: Any = [tensors[index] for index in wanted]
    found: Any = torch.autograd.grad(
        [result for result, _ in pairs], inputs, [gradient for _, gradient in pairs],
        create_graph=further, allow_unused=True,
    )  # fmt: skip
    return list(found)


def _laid_out(kernel: Kernel, index: int, gradient: Tensor | None) -> Tensor | None:
    """Put a gradient into the kernel's layout."""
    if gradient is None:
        return None
    room = kernel.gradient_like(index, gradient)
    return gradient if gradient.stride() == room.stride() else room.copy_(gradient)


def _spread(
    found: Sequence[Tensor | None], wanted: Sequence[int], tensors: Sequence[Any]
) -> list[Tensor | None]:
    spread: list[Tensor | None] = [None] * len(tensors)
    for index, gradient in zip(wanted, found, strict=True):
        spread[index] = gradient
    return spread


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Let what this thread makes take no bytes, for the length of a `with` block."""
    current = the_session().current
    before, current.uncounted = current.uncounted, True
    try:
        yield
    finally:
        current.uncounted = before


def _count(tensors: Sequence[Tensor | None]) -> None:
    """Take the bytes of what stays."""
    session = the_session()
    for tensor in tensors:
        label = None if tensor is None else label_of(tensor, session.key)
        if label is not None:
            label.count()


def _random_state(tensor: Tensor) -> Tensor:
    return the_session().generators[tensor.get_device()].get_state()


@contextlib.contextmanager
def _random_state_set(tensor: Tensor, numbers: Tensor | None) -> Iterator[None]:
    """Draw the numbers of the forward pass again."""
    if numbers is None:
        yield
        return
    generator = the_session().generators[tensor.get_device()]
    now = generator.get_state()
    generator.set_state(numbers)
    try:
        yield
    finally:
        generator.set_state(now)
