"""Observe weights that two modules share, and that tensor parallelism may make two of."""

import weakref
from typing import Any

from dpdemo.ranks.events import Trap
from dpdemo.ranks.observe.models import parameters_of
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line

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
