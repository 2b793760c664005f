"""Observe what is the same on all ranks: tensors that are declared so, and the rows of tensor parallelism."""

import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from dpdemo.ranks.events import Replicated, SameRows, Trap
from dpdemo.ranks.observe.models import parameters_of, ranks_of_mesh
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line
from dpdemo.ranks.observe.numbers import total, values

_MAX_NOTED, _MAX_VALUES = 32, 16
_Named = list[tuple[str, weakref.ref[Any]]]


class Replaced:
    """Parameters that `parallelize_module` replaced: one that two modules had may have become two."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.before: _Named = []
        self.found: dict[int, tuple[weakref.ref[Any], str, _Named]] = {}
        """By parameter before: itself, the line, and by name in the module what has replaced it."""

    @never_raises
    def begin(self, module: Any) -> None:
        """List a module's parameters, shared ones under each of their names."""
        self.before = _parameters(module)

    @never_raises
    def end(self, module: Any) -> None:
        """Remember what has replaced each parameter."""
        at, after = users_line(), dict(_parameters(module))
        before, self.before = self.before, []
        for name, old in before:
            new = after.get(name)
            if new is not None and new is not old:  # one parameter has one weak reference
                self.found.setdefault(id(old), (old, at, []))[2].append((name, new))

    @never_raises
    def steps(self, optimizer: Any) -> None:
        """Look, at the first step of what replaced a parameter, whether the optimizer trains several."""
        given = {id(each) for each in parameters_of(optimizer)}
        for key, (old, at, named) in list(self.found.items()):
            trained = {name: id(new()) for name, new in named if id(new()) in given}
            if trained:
                del self.found[key]
                if len({*trained.values()}) + (id(old()) in given) > 1:
                    others = ["a module that it left out"] * (id(old()) in given)
                    self.notes.write(Trap("untied", at, " and ".join([*trained, *others])))


def _parameters(module: Any) -> _Named:
    return [(name, weakref.ref(each)) for name, each in module.named_parameters(remove_duplicate=False)]


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
        def from_local(make: Any, local_tensor: Any, *args: Any, **kwargs: Any) -> Any:
            made = make(local_tensor, *args, **kwargs)
            note(local_tensor, made)
            return made

    replaced = Replaced(notes)

    def joined(module: Any) -> None:
        @notes.around(module, "parallelize_module", why="its ranks compute the same rows")
        def parallelize(run: Any, model: Any, device_mesh: Any = None, *args: Any, **kwargs: Any) -> Any:
            replaced.begin(model)
            made = run(model, device_mesh, *args, **kwargs)
            replaced.end(model)
            note_joined(device_mesh)
            return made

        notes.hooked(register_optimizer_step_pre_hook(lambda each, *_: replaced.steps(each)))

    @never_raises
    def note_joined(mesh: Any) -> None:
        notes.write(SameRows(tuple(ranks_of_mesh(mesh))))

    notes.when_imported("torch.distributed.tensor._api", follow)
    notes.when_imported("torch.distributed.tensor.parallel", joined)
