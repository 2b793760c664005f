"""Observe collectives that change a tensor through which a backward pass then goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.ranks.events import OutOfGraph
from dpdemo.ranks.log import public_name
from dpdemo.ranks.observe.notes import around, never_raises, users_line
from dpdemo.virtual.labels import flat_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.ranks.observe.notes import Notes
    from dpdemo.virtual.ops.collectives import Call

_IN_PLACE = {"allreduce_", "broadcast_", "reduce_", "allreduce_coalesced_"}
_MAX_NODES = 10_000
_REDUCTIONS = {0: "SUM", 1: "AVG", 2: "PRODUCT", 3: "MIN", 4: "MAX"}


class GraphNotes:
    """Follows the tensors that a collective changed although they have a history."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.seen: set[str] = set()
        self.root: Any = None
        """Where the backward pass under way begins."""
        self.at = ""

    @never_raises
    def __call__(self, call: Call) -> None:
        """Watch whether a backward pass comes to what the collective changes."""
        if call.name not in _IN_PLACE or not torch.is_grad_enabled():
            return
        if torch._C._current_graph_task_id() >= 0:
            return
        for tensor in flat_tensors(call.args[0]):
            node = tensor.grad_fn
            at = users_line()
            if node is not None and at not in self.seen:
                reduced = _REDUCTIONS.get(call.reduction if call.reduction is not None else -1, "")
                begun = torch._C._autograd._get_sequence_nr()
                node.register_prehook(
                    self._hook(OutOfGraph(public_name(call.name), at, reduced), node, begun)
                )

    def _hook(self, noted: OutOfGraph, node: Any, begun: int) -> Callable[..., None]:
        @never_raises
        def reached(_: Any) -> None:
            if noted.at not in self.seen and _is_used_later(self.root, node, begun):
                self.seen.add(noted.at)
                self.notes.write(OutOfGraph(noted.op, noted.at, noted.reduce, self.at))

        return reached

    @never_raises
    def begins(self, tensors: Any) -> None:
        """Remember where a backward pass begins."""
        loss = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        self.root, self.at = getattr(loss, "grad_fn", None), users_line()


def _is_used_later(root: Any, node: Any, begun: int) -> bool:
    """Return whether the graph below `root` has a use of `node` that was made after `begun`."""
    left: list[Any] = [root]
    seen: set[Any] = set()
    while left and len(seen) < _MAX_NODES:
        here = left.pop()
        if here is None or here in seen:
            continue
        seen.add(here)
        before = [each for each, _ in here.next_functions]
        if node in before and here._sequence_nr() >= begun:
            return True
        left += before
    return False


def watch(notes: Notes) -> GraphNotes:
    """Follow this process's backward passes; the result listens to collectives."""
    found = GraphNotes(notes)

    @around(torch.autograd, "backward")
    def backward(run: Any, tensors: Any, *args: Any, **kwargs: Any) -> None:
        found.begins(tensors)
        try:
            run(tensors, *args, **kwargs)
        finally:
            found.root = None

    return found
