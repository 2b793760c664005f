"""Operators that are one kernel on CUDA and many on the CPU: they must hold what CUDA's kernel holds.

The numbers are those of the CPU's operators. But a GPU would not hold what these make on the way, such as
attention's weights and the states of each time step. So they run uncounted, and with a record of their own
for autograd: what `FusedKernel` keeps, and counts, are its operands, its first result and the bytes that
CUDA's kernel keeps beside them (its *reserve*). Where there is no such record (it is used up, or hooks on
saved tensors would see it), `backward` runs the operators again to differentiate them.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from dpdemo.virtual.labels import gpu_of, has_operators_of_its_own, label_of, stamp_all
from dpdemo.virtual.state import is_seen_by_us_alone, the_session

FUSED = "one kernel on CUDA, which keeps less than the CPU's operators"
_counting = threading.Lock()


@dataclass(frozen=True)
class Kernel:
    """One of CUDA's kernels.

    `run` computes the results from the tensors by the CPU's operators; `like` makes results without numbers;
    `gradient_like` makes room for the gradient of the tensor at some place, in the kernel's own layout;
    `reserve_bytes` are kept for the backward pass, and its first result if it `keeps_result`; `scratch_bytes`
    are needed while that runs. `operator` is CUDA's own, without numbers: policies of checkpointing name it.
    """

    run: Callable[..., tuple[Tensor, ...]]
    like: Callable[..., tuple[Tensor, ...]]
    reserve_bytes: int
    scratch_bytes: int = 0
    is_random: bool = False
    gradient_like: Callable[[int, Tensor], Tensor] = lambda _, tensor: torch.empty_like(tensor)
    keeps_result: bool = True
    operator: Callable[..., tuple[Tensor, ...]] | None = None  # CUDA's, for modes that look at operators


def is_plain() -> bool:
    """Return whether only backward is recorded: `torch.func` and forward mode take operators apart."""
    functorch: Any = torch._C._functorch
    return forward_ad._current_level < 0 and functorch.peek_interpreter_stack() is None


def run_fused(kernel: Kernel, *tensors: Tensor | None) -> tuple[Tensor, ...]:
    """Run a kernel on tensors that are on one GPU.

    A class with operators of its own, such as DTensor, takes the CPU's operators instead: it has no numbers
    that a kernel could read.
    """
    if any(has_operators_of_its_own(type(tensor)) for tensor in tensors if tensor is not None):
        return kernel.run(*tensors)
    is_recorded = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in tensors
    )
    results: tuple[Tensor, ...] = FusedKernel.apply(kernel, is_recorded, *tensors)  # type: ignore[no-untyped-call]
    return results


class _Record(NamedTuple):
    """The operators of one call, recorded by autograd from `leaves` to `results`."""

    leaves: Sequence[Tensor | None]
    results: Sequence[Tensor]


class FusedKernel(torch.autograd.Function):
    """A kernel, as autograd sees it on CUDA: one operation."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, is_recorded: bool, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        """Compute the results, and keep what CUDA's kernel keeps."""
        first = next(tensor for tensor in tensors if tensor is not None)
        ctx.kernel, ctx.numbers = (
            kernel,
            the_session().generators[first.get_device()].get_state() if kernel.is_random else None,
        )
        needed = ctx.needs_input_grad[2:]
        ctx.record = _record(kernel, tensors, needed) if is_recorded and _can_record() else None
        results = _results(kernel, tensors, ctx.record)
        if is_recorded:
            reserve = first.new_empty(kernel.reserve_bytes, dtype=torch.uint8)
            kept = results[:1] if kernel.keeps_result else ()  # CUDA's kernels keep no further result
            ctx.save_for_backward(*tensors, *kept, reserve)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Differentiate the operators."""
        kernel: Kernel = ctx.kernel
        needed = ctx.needs_input_grad[2:]
        tensors = ctx.saved_tensors[: len(needed)]
        first = next(tensor for tensor in tensors if tensor is not None)
        if torch.is_grad_enabled():  # for the gradient of a gradient, which CUDA's kernels do not have
            with _random_state_set(first, ctx.numbers):
                again = _Record(tensors, kernel.run(*tensors))
            return None, None, *_differentiate(again, needed, gradients, create_graph=True)
        scratch = first.new_empty(kernel.scratch_bytes, dtype=torch.uint8)
        if the_session().is_meta:
            found = [
                kernel.gradient_like(place, tensor) if wanted else None
                for place, (tensor, wanted) in enumerate(zip(tensors, needed, strict=True))
            ]
        else:
            with _random_state_set(first, ctx.numbers), uncounted():
                record = ctx.record or _record(kernel, tensors, needed)
                ctx.record = record if the_session().current.keeps_graph else None
                with _quietly(draws=False):
                    found = _differentiate(record, needed, gradients)
                found = [_laid_out(kernel, *pair) for pair in enumerate(found)]
            _count(found)
        del scratch
        return None, None, *found


def _can_record() -> bool:
    """Return whether nothing would see the tensors that the operators save: no hooks, and numbers to save."""
    hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks
    return not the_session().is_meta and hooks(True) is None


def _record(kernel: Kernel, tensors: Sequence[Tensor | None], needed: Sequence[bool]) -> _Record:
    with uncounted(), torch.enable_grad(), _quietly(draws=kernel.is_random):
        leaves = [
            tensor.detach().requires_grad_(wanted) if tensor is not None else None
            for tensor, wanted in zip(tensors, needed, strict=True)
        ]
        results = kernel.run(*leaves)
        _label_like(tensors, results)
    return _Record(leaves, results)


@contextlib.contextmanager
def _quietly(*, draws: bool) -> Iterator[None]:
    """Run a kernel's operators without passing through `dispatch.py`, where nothing would see them.

    They are on one GPU, and nothing of theirs is counted; what they return is labelled afterwards. Random
    ones must pass: their numbers are the GPU's.
    """
    if draws or not is_seen_by_us_alone():
        yield
        return
    with torch._C._DisableTorchDispatch():
        yield


def _label_like(tensors: Sequence[Tensor | None], results: Sequence[Tensor | None]) -> None:
    """Put results on the GPU of what they were made of."""
    session = the_session()
    index = next(gpu_of(tensor) for tensor in tensors if tensor is not None)
    if index is not None:
        for result in results:
            stamp_all(result, session, index)


def _results(kernel: Kernel, tensors: Sequence[Tensor | None], record: _Record | None) -> tuple[Tensor, ...]:
    if the_session().is_meta:
        if kernel.operator is not None and torch._C._len_torch_dispatch_stack() > 1:
            return kernel.operator(*tensors)[:1]
        return kernel.like(*tensors)
    with uncounted():
        if record is None:
            with _quietly(draws=kernel.is_random):
                results = kernel.run(*tensors)
            _label_like(tensors, results)
        else:  # the record lives on, but of the results only what the kernel keeps is to be held with it
            first, *others = record.results
            kept = first.detach() if kernel.keeps_result else first.detach().clone()
            results = (kept, *(other.detach().clone() for other in others))
    _count(results)
    return results


def _differentiate(
    record: _Record, needed: Sequence[bool], gradients: Sequence[Tensor | None], *, create_graph: bool = False
) -> list[Tensor | None]:
    """Return the gradient of each tensor that needs one, and None for the others."""
    pairs = [(result, gradient) for result, gradient in zip(record.results, gradients, strict=True)
             if gradient is not None and result.requires_grad]  # fmt: skip
    inputs: Any = [tensor for tensor, wanted in zip(record.leaves, needed, strict=True) if wanted]
    found: Any = torch.autograd.grad(
        [result for result, _ in pairs], inputs, [gradient for _, gradient in pairs],
        retain_graph=create_graph or the_session().current.keeps_graph,
        create_graph=create_graph, allow_unused=True,
    )  # fmt: skip
    rest = iter(found)
    return [next(rest) if wanted else None for wanted in needed]


def _laid_out(kernel: Kernel, index: int, gradient: Tensor | None) -> Tensor | None:
    """Put a gradient into the kernel's layout."""
    if gradient is None:
        return None
    room = kernel.gradient_like(index, gradient)
    return gradient if gradient.stride() == room.stride() else room.copy_(gradient)


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Let what this thread makes take no bytes, for the length of a `with` block."""
    session = the_session()
    with _counting:
        session.num_uncounted += 1
    try:
        with session.current.having("uncounted", True):
            yield
    finally:
        with _counting:
            session.num_uncounted -= 1


def _count(tensors: Sequence[Tensor | None]) -> None:
    """Take the bytes of what stays."""
    session = the_session()
    for tensor in tensors:
        label = None if tensor is None else label_of(tensor, session.key)
        if label is not None:
            label.count()


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
