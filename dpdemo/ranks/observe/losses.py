"""Observe how much each element weighs in a loss: ranks that average over other numbers of elements differ.

At `backward()` the graph is followed from the loss to the first reductions. Each tells over how many
elements it averages, and a hook on it tells what gradient it gets.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from dpdemo.ranks.events import Loss
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line
from dpdemo.ranks.observe.numbers import is_checked, value

_SCALAR = (
    *("Add", "Sub", "Neg", "Mul", "Div", "ToCopy", "Clone"),
    *("Squeeze", "Unsqueeze", "View", "Alias", "Stack"),
)
_WITH_REDUCTION = (
    *("MseLoss", "L1Loss", "SmoothL1Loss", "HuberLoss"),
    *("BinaryCrossEntropy", "NllLoss", "SoftMargin"),
)
_MEAN = 1
_ALWAYS, _MAX_NODES = 64, 64


class LossNotes:
    """Notes the weights of a loss's elements at a backward pass."""

    def __init__(self, notes: Notes, drawn: Callable[[], tuple[int, ...]]) -> None:
        self.notes, self.drawn = notes, drawn

    def begin(self, tensors: Any) -> list[Any]:
        """Follow the graph of a loss, and return the hooks to remove."""
        loss = tensors[0] if isinstance(tensors, (list, tuple)) and len(tensors) == 1 else tensors
        if not isinstance(loss, torch.Tensor) or loss.grad_fn is None or loss.numel() != 1:
            return []
        if not dist.is_initialized():
            return []
        at = users_line()
        number, drawn, handles = self.notes.number(Loss, at), self.drawn(), []
        if number > _ALWAYS and not is_checked(number):
            return []
        for place, (node, averaged, divisor) in enumerate(
            _reductions(past_sink(loss.grad_fn, loss.output_nr))
        ):
            noted = Loss(at, number, place, node.name(), averaged * divisor, math.nan, drawn)
            handles.append(node.register_prehook(self._hook(noted, averaged or 1.0)))
        return handles

    def _hook(self, noted: Loss, averaged: float) -> Callable[..., None]:
        @never_raises
        def note(gradients: tuple[torch.Tensor | None, ...]) -> None:
            if gradients and gradients[0] is not None and gradients[0].numel() == 1:
                weight = abs(value(gradients[0])) / averaged
                self.notes.write(replace(noted, weight=weight))

        return note


def _reductions(root: Any) -> Iterator[tuple[Any, float, float]]:
    """Yield the reductions that make a loss: how many elements each averages, and what divides it further."""
    left, seen = [(root, 1.0)], 0
    while left and seen < _MAX_NODES:
        node, divisor = left.pop()
        seen += 1
        name = node.name()
        if name.startswith("Sum"):
            yield node, 1.0, divisor
        elif name.startswith("MeanBackward0"):
            yield node, float(math.prod(node._saved_self_sym_sizes)), divisor
        elif name.startswith(_WITH_REDUCTION):
            yield node, _averaged(node), divisor
        elif name.startswith(_SCALAR):
            if name.startswith("Div"):
                divisor *= abs(value(node._saved_other))
            left += [(each, divisor) for each in inputs_of(node)]


def inputs_of(node: Any) -> list[Any]:
    """Return the nodes that a node of a graph gets its inputs from; those of DDP itself are left out."""
    return [past_sink(each, place) for each, place in node.next_functions if each is not None]


def past_sink(node: Any, place: int) -> Any:
    """Return the node that makes a result of a wrapped model, which has one node for all its results."""
    while node.name().startswith("_DDPSink") and node.next_functions[place][0] is not None:
        node, place = node.next_functions[place]
    return node


def _averaged(node: Any) -> float:
    if getattr(node, "_saved_reduction", 0) != _MEAN:
        return 1.0
    if node.name().startswith("Nll"):
        return value(node._saved_total_weight)
    return float(node._saved_self.numel())


def watch(notes: Notes, drawn: Callable[[], tuple[int, ...]]) -> None:
    """Look at each loss of this process; `drawn` returns the sizes of the batch that was drawn last."""
    found = LossNotes(notes, drawn)

    @notes.around(torch.autograd, "backward", why="the reductions of a loss are known then")
    def backward(run: Any, /, tensors: Any, *args: Any, **kwargs: Any) -> None:
        handles: list[Any] = []
        try:
            handles = found.begin(tensors)
        except Exception:  # noqa: BLE001 - a graph of another kind is left alone
            handles = []
        try:
            run(tensors, *args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
