"""Observe the first number of training that is not finite: a loss, or a gradient of a finite loss."""

from typing import Any

import torch

from dpdemo.ranks.events import NotFinite
from dpdemo.ranks.observe.models import parameters_of
from dpdemo.ranks.observe.notes import Notes
from dpdemo.ranks.observe.numbers import is_finite, local, values
from dpdemo.virtual.labels import flat_tensors
from dpdemo.virtual.ops.collectives import Call


class FiniteNotes:
    """Notes the first step with such a gradient."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.first: tuple[str, str, str] | None = None
        """The first number since the last step that was not finite: its kind, line and value."""
        self.is_noted = False

    def loss(self, loss: Any, at: str) -> None:
        """Look at a loss."""
        if isinstance(loss, torch.Tensor) and loss.numel() == 1 and not is_finite(loss):
            self.first = self.first or ("loss", at, str(values(local(loss), 1)[0]))

    def bucket(self, call: Call, at: str) -> None:
        """Look at gradients of this rank before they are averaged."""
        sent = call.args["scatter" in call.name]
        if self.first is None and not all(map(is_finite, flat_tensors(sent))):
            self.first = ("gradient", at, "")

    def step(self, optimizer: Any, number: int) -> None:
        """Look at the gradients of a step."""
        is_scaled = getattr(optimizer, "found_inf", None) is not None  # it skips such a step itself
        if self.first is None or self.is_noted or is_scaled:
            return
        grads = (each.grad for each in parameters_of(optimizer))
        if not all(is_finite(each) for each in grads if each is not None):
            self.is_noted = True
            what, at, value = self.first
            self.notes.write(NotFinite(what, number, at, value))
