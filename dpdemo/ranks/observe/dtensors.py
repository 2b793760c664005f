"""Observe tensors that are declared the same on all ranks: `DTensor.from_local` with Replicate()."""

from collections import Counter
from typing import Any

import torch

from dpdemo.ranks.events import Replicated
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line
from dpdemo.ranks.observe.numbers import total, values

_MAX_NOTED, _MAX_VALUES = 32, 16


class DTensorNotes:
    """Notes the first such tensors of each line."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.numbers: Counter[str] = Counter()

    @never_raises
    def made(self, tensor: Any, made: Any) -> None:
        """Note a tensor of which each rank has a copy."""
        if torch._C._current_graph_task_id() >= 0 or not all(
            place.is_replicate() for place in made.placements
        ):
            return
        mesh = made.device_mesh
        if mesh.size() == 1:
            return
        at = users_line()
        self.numbers[at] += 1
        if self.numbers[at] <= _MAX_NOTED:
            ranks = tuple(sorted(torch._C.TensorBase.tolist(mesh.mesh.flatten())))
            shown = tuple(map(float, values(tensor, _MAX_VALUES)))
            self.notes.write(Replicated(at, self.numbers[at], ranks, total(tensor), shown))


def watch(notes: Notes) -> None:
    """Look at the DTensors that this process makes of its own tensors."""
    found = DTensorNotes(notes)

    def follow(module: Any) -> None:
        @notes.around(module.DTensor, "from_local", why="ranks may give other tensors as the same")
        def from_local(make: Any, local_tensor: Any, *args: Any, **kwargs: Any) -> Any:
            made = make(local_tensor, *args, **kwargs)
            found.made(local_tensor, made)
            return made

    notes.when_imported("torch.distributed.tensor._api", follow)
