"""Observe collectives inside autograd's graph: those that change or send away a tensor with a history."""

import itertools
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import optimizer as optimizers

from dpdemo.ranks.events import OutOfGraph
from dpdemo.ranks.log import public_name
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line
from dpdemo.ranks.observe.numbers import values
from dpdemo.virtual.labels import flat_tensors
from dpdemo.virtual.ops.collectives import Call

_IN_PLACE = {"allreduce_", "broadcast_", "reduce_", "allreduce_coalesced_"}
_SENDING = {"alltoall_base_", "alltoall_", "_reduce_scatter_base_", "reduce_scatter_"}
_GATHERING = {"allgather_", "_allgather_base_"}
_PRODUCTS = "MmBackward", "BmmBackward", "AddmmBackward", "MulBackward"
_MAX_NODES, _MAX_SAVED, _MAX_VALUES = 10_000, 256, 64
_REDUCTIONS = {0: "SUM", 1: "AVG", 2: "PRODUCT", 3: "MIN", 4: "MAX"}


class Sent:
    """A tensor with a history that a collective sent away: what comes back has none."""

    def __init__(self, event: OutOfGraph, node: Any) -> None:
        self.event = event
        self.is_reached = False
        self.leaves: list[weakref.ref[Any]] = [
            weakref.ref(each.variable) for each in _nodes(node) if hasattr(each, "variable")
        ]

    def reach(self, _: Any) -> None:
        """Remember that a backward pass came to it."""
        self.is_reached = True

    def is_lost(self) -> bool:
        """Return whether none of the parameters before it has a gradient."""
        found = [leaf for leaf in (ref() for ref in self.leaves) if leaf is not None]
        return not self.is_reached and bool(found) and all(leaf.grad is None for leaf in found)


class GraphNotes:
    """Follows the tensors that a collective changed, sent or gathered although they have a history."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.seen: set[str] = set()
        self.sent: list[Sent] = []
        self.gathered: dict[str, Gathered] = {}
        self.root: Any = None  # where the backward pass under way begins
        self.at = ""

    @never_raises
    def __call__(self, call: Call) -> None:
        """Watch whether a backward pass comes to what the collective changes, or to what it sends."""
        if not torch.is_grad_enabled() or torch._C._current_graph_task_id() >= 0:
            return
        if call.name in _IN_PLACE:
            self._changes(call)
        elif call.name in _SENDING | _GATHERING:
            self._sends(call)

    def _changes(self, call: Call) -> None:
        for tensor in flat_tensors(call.args[0]):
            node, at = tensor.grad_fn, users_line()
            if node is not None and at not in self.seen:
                reduced = _REDUCTIONS.get(-1 if call.reduction is None else call.reduction, "")
                begun = torch._C._autograd._get_sequence_nr()
                node.register_prehook(
                    self._hook(OutOfGraph(public_name(call.name), at, reduced), node, begun)
                )

    def _sends(self, call: Call) -> None:
        at, op = users_line(), public_name(call.name)
        if at in self.seen:
            return
        for tensor in flat_tensors(call.args[1]):
            if tensor.grad_fn is None:
                continue
            if call.name in _GATHERING:
                ranks = dist.get_process_group_ranks(call.group)
                mine = ranks.index(dist.get_rank())
                self.gathered[at] = Gathered(OutOfGraph(op, at), tensor, mine, len(ranks))
            else:
                sent = Sent(OutOfGraph(op, at, is_lost=True), tensor.grad_fn)
                tensor.grad_fn.register_prehook(sent.reach)
                self.sent.append(sent)

    def _hook(self, noted: OutOfGraph, node: Any, begun: int) -> Callable[..., None]:
        @never_raises
        def reached(_: Any) -> None:
            if noted.at not in self.seen and _is_used_later(self.root, node, begun):
                self._note(replace(noted, backward_at=self.at))

        return reached

    def _note(self, event: OutOfGraph) -> None:
        self.seen.add(event.at)
        self.notes.write(event)

    @never_raises
    def begins(self, tensors: Any) -> None:
        """Remember where a backward pass begins, and look for gathered tensors in its graph."""
        loss = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        self.root, self.at = getattr(loss, "grad_fn", None), users_line()
        gathered, self.gathered = self.gathered, {}
        for each in gathered.values():
            found = next(filter(each.is_in, _saved(self.root)), None)
            if found is not None:
                self._note(replace(each.event, backward_at=self.at, has_own=found.requires_grad))

    @never_raises
    def steps(self) -> None:
        """Note what was sent away, if no gradient came to the parameters before it."""
        sent, self.sent = self.sent, []
        for each in sent:
            if each.event.at not in self.seen and each.is_lost():
                self._note(replace(each.event, backward_at=self.at))


class Gathered:
    """A tensor with a history that a collective gathered from all ranks."""

    def __init__(self, event: OutOfGraph, tensor: torch.Tensor, place: int, count: int) -> None:
        self.event, self.place, self.count = event, place, count
        self.number, self.values = tensor.numel(), values(tensor, _MAX_VALUES)

    def is_in(self, saved: torch.Tensor) -> bool:
        """Return whether a tensor has all ranks' tensors one after another, this rank's at its place."""
        if saved.numel() != self.number * self.count or len(set(self.values)) < 2:
            return False
        start = saved.storage_offset() + self.place * self.number
        flat = torch.as_strided(torch.Tensor.detach(saved), (len(self.values),), (1,), start)
        return values(flat, _MAX_VALUES) == self.values


def _nodes(root: Any) -> Iterator[Any]:
    """Yield the nodes of a graph below `root`."""
    left: list[Any] = [root]
    seen: set[Any] = set()
    while left and len(seen) < _MAX_NODES:
        here = left.pop()
        if here is not None and here not in seen:
            seen.add(here)
            left += [each for each, _ in here.next_functions]
            yield here


def _saved(root: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors that products in a graph keep for their gradients."""
    products = (node for node in _nodes(root) if node.name().startswith(_PRODUCTS))
    for node in itertools.islice(products, _MAX_SAVED):
        for name in ("_saved_self", "_saved_mat1", "_saved_mat2", "_saved_other"):
            saved = getattr(node, name, None)
            if isinstance(saved, torch.Tensor):
                yield saved


def _is_used_later(root: Any, node: Any, begun: int) -> bool:
    """Return whether the graph below `root` has a use of `node` that was made after `begun`."""
    return any(
        here._sequence_nr() >= begun and node in [each for each, _ in here.next_functions]
        for here in _nodes(root)
    )


def watch(notes: Notes) -> GraphNotes:
    """Follow this process's backward passes; the result listens to collectives."""
    found = GraphNotes(notes)

    @notes.around(torch.autograd, "backward", why="the graph of a loss is known then")
    def backward(run: Any, /, tensors: Any, *args: Any, **kwargs: Any) -> None:
        found.begins(tensors)
        try:
            run(tensors, *args, **kwargs)
        finally:
            found.root = None

    notes.hooked(optimizers.register_optimizer_step_pre_hook(lambda *_: found.steps()))
    return found
