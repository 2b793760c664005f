"""A repair of the user's code: what stands there, what to write in its place, and what else to change."""

from typing import NamedTuple

from dpdemo.reports.check import Change, Place


class Repair(NamedTuple):
    """One or more changes that belong together: the first, and `also` the others.

    Without a place the first is of the line that calls the model.
    """

    place: Place | None
    before: str
    after: str
    also: tuple[Change, ...] = ()

    def as_change(self) -> Change:
        """Return its first change, to be one of another's."""
        return Change(self.place, self.before, self.after)


def repair_of(changes: tuple[Change, ...]) -> Repair | None:
    """Make a repair of changes; None of none."""
    if not changes:
        return None
    first, *others = changes
    return Repair(first.place, first.before, first.after, tuple(others))
