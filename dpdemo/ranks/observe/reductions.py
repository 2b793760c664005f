"""Parameters under no wrapper, whose gradients ranks may reduce themselves, and their reductions."""

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from dpdemo.ranks.events import ByHand
from dpdemo.ranks.observe.models import Model
from dpdemo.virtual.labels import flat_tensors
from dpdemo.virtual.ops.collectives import Call

_MAX_SHAPES, _METRICS = 4, 0.1
_SUMMED = "at", "is_idle", "is_local", "is_sharded", "is_beside", "was_whole", "sends_rows"


class Reductions:
    """Remembers what the program's own reductions took, until a step of an optimizer."""

    def __init__(self) -> None:
        self.known: dict[int, list[weakref.ref[Any]]] = {}
        """By number of elements, the parameters that optimizers have."""
        self.gradients: set[int] = set()
        self.parameters: set[int] = set()
        self.shards: set[int] = set()
        """Parameters that are each rank's own part: gathered, or as large as what a reduce_scatter wrote."""
        self.scattered: set[int] = set()
        """The storages that reduce_scatter wrote since the last step."""
        self.num_elements = self.exchanged = self.largest = 0
        self.before_pass = 0  # elements reduced before the first backward pass since a step
        self.has_pass = False
        self.sends_rows = False
        self.ranks: list[int] = []

    def know(self, parameters: list[Any]) -> None:
        """Remember an optimizer's parameters."""
        for each in filter(is_plain, parameters):
            self.known.setdefault(each.numel(), []).append(weakref.ref(each))

    def pass_begins(self) -> None:
        """Remember what was reduced before: it is of no gradient of this pass."""
        if not self.has_pass:
            self.before_pass, self.has_pass = self.num_elements, True

    def takes_part(self, call: Call) -> None:
        """Look for signs that each rank has a part of the model: shards, or experts."""
        self.sends_rows |= "alltoall" in call.name
        if "allgather" in call.name:
            self.gathers(flat_tensors(call.args[1]))
        elif "reduce_scatter" in call.name:
            self.scatters(flat_tensors(call.args[0]))

    def scatters(self, outputs: Iterable[torch.Tensor]) -> None:
        """Remember what a reduce_scatter writes: gradients of shards, if it is of gradients."""
        for tensor in outputs:
            self.scattered.add(storage_of(tensor))
            if tensor.numel() > 1:
                self.shards |= {id(each) for each in self._of_size(tensor)}

    def gathers(self, tensors: Iterable[torch.Tensor]) -> None:
        """Remember the parameters of which each rank gathers the others' parts."""
        for tensor in tensors:
            storage = storage_of(tensor)
            self.shards |= {id(each) for each in self._of_size(tensor) if storage_of(each) == storage}

    def _of_size(self, tensor: torch.Tensor) -> Iterator[Any]:
        found = (ref() for ref in self.known.get(tensor.numel(), ()))
        return (each for each in found if each is not None)

    def add(self, group: Any, tensors: list[torch.Tensor]) -> None:
        """Remember a reduction."""
        for tensor in tensors:
            storage = storage_of(tensor)
            for parameter in self._of_size(tensor):
                if parameter.grad is not None and storage_of(parameter.grad) == storage:
                    self.gradients.add(id(parameter))
                elif storage_of(parameter) == storage:
                    self.parameters.add(id(parameter))
        number = sum(each.numel() for each in tensors)
        self.num_elements += number
        self.largest = max(self.largest, number)
        if number > 1:
            self.ranks = dist.get_process_group_ranks(group)

    def took(self, parameters: dict[int, weakref.ref[Any]]) -> bool:
        """Return whether a reduction took some of these parameters, or as many numbers as they are."""
        if not self.largest or not self.parameters.isdisjoint(parameters):
            return bool(self.parameters)
        found = (ref() for ref in parameters.values())
        return bool(self.largest >= sum(each.numel() for each in found if each is not None))


class Optimized(Model):
    """The parameters of an optimizer, under no wrapper; ranks may reduce their gradients themselves."""

    def __init__(self, name: str, ranks: list[int], parameters: list[Any], norms: Any, at: str) -> None:
        super().__init__(name, ranks, parameters)
        self.at = at
        self.seen_norms = norms
        self.exchanged = [0, 0]  # elements of all collectives up to the first step, and up to the last one
        self.counts: dict[str, Any] = {"all": 0, "some": 0, "none": 0}
        self.names = {id(each): f"{list(each.shape)} ({number})" for number, each in enumerate(parameters)}
        self.is_local, self.is_sharded, self.is_idle = False, False, True
        self.is_beside = self.was_whole = self.sends_rows = False
        """Whether parameters were reduced themselves; whether none ever had a gradient."""

    def compared(self) -> list[Any]:
        """Return the parameters."""
        return [each for each in self.living() if each.requires_grad]

    def norms(self) -> Iterator[tuple[str, Any]]:
        """Yield each BatchNorm whose weight the optimizer trains."""
        for index, each in enumerate(list(self.seen_norms)):
            if id(each.weight) in self.parameters:
                yield f"{type(each).__name__} {index}", each

    def sums(self) -> ByHand:
        """Return the event that sums up its steps."""
        given = {name: getattr(self, name) for name in _SUMMED}
        shapes = tuple(self.names.values())[:_MAX_SHAPES]
        return ByHand(
            self.name, tuple(self.ranks), is_alone=self.is_alone(), shapes=shapes, **self.counts, **given
        )

    def is_alone(self) -> bool:
        """Return whether ranks exchanged metrics between its steps, if anything: far less than parameters."""
        size = sum(each.numel() for each in self.compared())
        first, last = self.exchanged
        return self.steps > 1 and last - first <= _METRICS * size * self.steps

    def note_reductions(self, reduced: Reductions) -> None:
        """Count this step among those whose gradients were reduced, all or some, or were not.

        A step without gradients tells nothing.
        """
        trained = [each for each in self.compared() if each.grad is not None]
        if not trained:
            return
        self.is_sharded |= any(
            id(each) in reduced.shards or storage_of(each.grad) in reduced.scattered for each in trained
        )
        found = sum(id(each) in reduced.gradients for each in trained)
        flat = reduced.num_elements - reduced.before_pass >= sum(each.numel() for each in trained)
        self.is_idle, self.sends_rows = False, reduced.sends_rows
        self.is_local |= any(id(each) in reduced.parameters for each in trained)
        kind = "all" if flat or found == len(trained) else "some" if found else "none"
        self.counts[kind] += 1
        self.exchanged = [self.exchanged[0] if self.steps > 1 else reduced.exchanged, reduced.exchanged]
        reduced.gradients -= self.parameters.keys()


def storage_of(tensor: torch.Tensor) -> int:
    """Return a number that tensors of one storage share."""
    return int(tensor.untyped_storage()._cdata)


def is_plain(parameter: Any) -> bool:
    """Return whether a parameter is one of a model, whole, and no shard or copy of some."""
    return type(parameter) is torch.nn.Parameter and type(parameter.data) is torch.Tensor
