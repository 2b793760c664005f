"""A step's log, used again in place of what would allocate the same: the optimizer's steps, a first pass.

An optimizer's steps depend on the gradients alone. So gradients that are laid out like those before have the
events of these, under numbers below 0, which no allocation has.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from dpdemo.memory.trace import live_events
from dpdemo.virtual.accounts import ALLOCATED, KEPT, Event
from dpdemo.virtual.blocks import Kind
from dpdemo.virtual.labels import label_of
from dpdemo.virtual.state import the_session

_Layout = tuple[torch.device, torch.dtype, torch.Size, tuple[int, ...]]


class Again:
    """The events of the steps of one model."""

    def __init__(self, log: list[Event], model: nn.Module) -> None:
        self._log, self._parameters = log, [*model.parameters()]
        self.updates: list[list[Event]] = []
        """Those of the optimizer's first two steps; none if they are not known."""
        self.is_used = False
        """Whether the last step used them, and made none of its own."""
        self._layouts: list[_Layout | None] = []
        self._kept: tuple[list[Event], list[int], list[int]] | None = None

    def clear(self) -> None:
        """Forget the optimizer's steps."""
        self.updates, self._kept = [], None

    def drop_dead(self) -> None:
        """Drop from the log what has been freed."""
        self._log[:] = [event for event in live_events(self._log) if event[1] > 0]

    def knows_updates(self) -> bool:
        """Return whether the gradients are laid out like those of the optimizer's steps."""
        self.is_used = bool(self.updates) and self._layouts == [*map(_layout, self._parameters)]
        return self.is_used

    def keep_updates(self, marks: Sequence[int]) -> None:
        """Keep the two steps between the last three marks, unless they touch anything made before them."""
        self.clear()
        parts = [self._log[begin:end] for begin, end in pairwise(marks[-3:])]
        own = {event[1] for part in parts for event in part if event[0] == ALLOCATED}
        is_apart = all(event[0] != KEPT and event[1] in own for part in parts for event in part)
        gradients = [each.grad for each in self._parameters if each.grad is not None]
        if is_apart and all(each.layout is torch.strided for each in gradients):
            self.updates = [[(event[0], -event[1], *event[2:]) for event in part] for part in parts]
            self._layouts = [*map(_layout, self._parameters)]

    def keep_pass(self, marks: list[int]) -> None:
        """Keep the log of a first pass and both steps, unless there is one; the gradients are there still."""
        if self._kept is None and self.updates:
            log = [*self._log]
            log[marks[2] : marks[4]] = [event for events in self.updates for event in events]
            key = the_session().key
            labels = [label_of(each.grad, key) for each in self._parameters if each.grad is not None]
            self._kept = log, [*marks], [label.birth if label else 0 for label in labels]

    def put_pass_back(self) -> list[int]:
        """Put the log of the first pass and its gradients back; return its marks, none if it is not known."""
        if self._kept is None:
            return []
        log, marks, births = self._kept
        if self._log != log[: marks[0]] or 0 in births:
            return []
        pairs = zip(self._parameters, self._layouts, strict=True)
        for (parameter, layout), birth in zip([pair for pair in pairs if pair[1]], births, strict=True):
            device, dtype, shape, strides = layout  # type: ignore[misc] # the others are left out
            parameter.grad = torch.empty_strided(shape, strides, dtype=dtype, device=device)
            label = label_of(parameter.grad, the_session().key)
            if label is not None:  # a tensor on a GPU always has one
                label.kind, label.birth = Kind.GRADIENT, birth
        self._log[:] = log
        return [*marks]


def _layout(parameter: torch.Tensor) -> _Layout | None:
    """Return what an optimizer's memory depends on in a gradient; None of a sparse one, or of none."""
    gradient = parameter.grad
    if gradient is None or gradient.layout is not torch.strided:
        return None
    return gradient.device, gradient.dtype, gradient.shape, gradient.stride()
