"""Observe what is the same on all ranks: tensors that are declared so, and the rows of tensor parallelism."""

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from dpdemo.ranks.events import Replicated, SameRows
from dpdemo.ranks.observe.models import ranks_of_mesh
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line
from dpdemo.ranks.observe.numbers import total, values
from dpdemo.ranks.observe.ties import Replaced

_MAX_NOTED, _MAX_VALUES = 32, 16


def watch(notes: Notes) -> None:
    """Note the first such tensors of each line."""

    @never_raises
    def note(tensor: Any, made: Any) -> None:
        mesh, is_in_backward = made.device_mesh, torch._C._current_graph_task_id() >= 0
        if is_in_backward or mesh.size() == 1 or not all(place.is_replicate() for place in made.placements):
            return
        at = users_line()
        number = notes.number(Replicated, at)
        if number <= _MAX_NOTED:
            shown = tuple(map(float, values(tensor, _MAX_VALUES)))
            notes.write(Replicated(at, number, tuple(ranks_of_mesh(mesh)), total(tensor), shown))

    def follow(module: Any) -> None:
        @notes.around(module.DTensor, "from_local", why="ranks may give other tensors as the same")
        def from_local(make: Any, /, local_tensor: Any, *args: Any, **kwargs: Any) -> Any:
            made = make(local_tensor, *args, **kwargs)
            note(local_tensor, made)
            return made

    replaced = Replaced(notes)

    def joined(parallel: Any) -> None:
        @notes.around(parallel, "parallelize_module", why="its ranks compute the same rows")
        def parallelize(run: Any, /, module: Any, device_mesh: Any = None, *args: Any, **kwargs: Any) -> Any:
            replaced.begin(module)
            made = run(module, device_mesh, *args, **kwargs)
            replaced.end(module)
            note_joined(device_mesh)
            return made

        notes.hooked(register_optimizer_step_pre_hook(lambda each, *_: replaced.steps(each)))

    @never_raises
    def note_joined(mesh: Any) -> None:
        notes.write(SameRows(tuple(ranks_of_mesh(mesh))))

    notes.when_imported("torch.distributed.tensor._api", follow)
    notes.when_imported("torch.distributed.tensor.parallel", joined)
