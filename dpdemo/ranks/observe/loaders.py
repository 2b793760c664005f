"""Note which samples a rank draws and which it trains on, at two doors: the loader's and the model's.

At the loader's door (`doors.py`) a sample is known by its index, if torch's DataLoader asks its data set for
one, and else by a fingerprint of its content. Rows that enter a wrapped module in training are looked up
among those that the loop got last. If no loader that is followed gave them, they are noted by their
fingerprints (`Fed`).
"""

import contextlib
import itertools
import weakref
import zlib
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist

from dpdemo.ranks.events import Fed, loader_name
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line, users_lines
from dpdemo.ranks.observe.passes import MAX_ROWS, Batch, Pass, line_of, read_before
from dpdemo.ranks.observe.rows import Fingerprints, fingerprints

_MAX_LABELS = 4096


class LoaderNames:
    """Names each DataLoader by its line; a number follows where a function or a loop makes several there.

    Two loaders differ if other lines led to the call, or if nothing was drawn from the first before the
    second was made. A loader that the program builds again for each epoch keeps its name.
    """

    def __init__(self) -> None:
        self.waiting: dict[tuple[str, ...], weakref.WeakKeyDictionary[Any, int]] = {}
        self.known: dict[str, list[tuple[tuple[str, ...], int]]] = {}

    def name(self, loader: Any) -> str:
        """Return the name of a loader that has just been made."""
        lines = tuple(users_lines())
        waiting = self.waiting.setdefault(lines, weakref.WeakKeyDictionary())
        taken = set(waiting.values())
        waiting[loader] = place = next(number for number in itertools.count() if number not in taken)
        at = users_line()
        known = self.known.setdefault(at, [])
        if (lines, place) not in known:
            known.append((lines, place))
        return loader_name(at, known.index((lines, place)))

    def drawn(self, loader: Any) -> None:
        """Take note that a loader is drawn from."""
        for waiting in self.waiting.values():
            with contextlib.suppress(TypeError):  # no weak reference to it
                waiting.pop(loader, None)


class Unloaded:
    """Rows that entered a model in training, and came from no loader, or were kept since it was read."""

    def __init__(self, model: str, at: str, kept: str) -> None:
        self.model, self.at, self.kept = model, at, kept
        self.count = self.sum = 0
        self.rows: list[int] = []
        self.sizes: list[int] = []
        self.labels: dict[str, str] = {}

    def add(self, prints: Fingerprints) -> None:
        """Add the rows of a call."""
        self.count += len(prints.rows)
        self.sum = zlib.crc32(repr(prints.rows).encode(), self.sum)
        if self.count <= MAX_ROWS:
            self.rows += prints.rows
            self.sizes.append(len(prints.rows))
            if len(self.labels) < _MAX_LABELS:
                self.labels |= {str(row): label for row, label in prints.labels.items()}

    def event(self) -> Fed:
        """Return what is noted of them."""
        rows = tuple(self.rows) if self.count <= MAX_ROWS else None
        return Fed(self.model, self.at, self.count, self.sum, rows, tuple(self.sizes), self.labels, self.kept)


class LoaderNotes:
    """Notes each epoch of each loader when it is over."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.running: dict[int, Pass] = {}
        self.over: dict[str, Pass] = {}
        """By loader, the last whole pass: noted once all that it gave was trained on, or with the next."""
        self.trained_on: set[str] = set()  # loaders whose rows entered a model
        self.names = LoaderNames()
        self.numbers: Counter[str] = Counter()
        self.last: Pass | None = None  # the pass that gave the loop a batch last
        self.doors: list[Pass] = []  # passes over loaders that are reading others
        self.unloaded: dict[tuple[str, str], Unloaded] = {}
        self.is_joined = False
        self.draws = 0

    def begin(self, loader: Any) -> Pass:
        """Begin an epoch."""
        self.names.drawn(loader)
        at = line_of(loader)
        door = next((each for each in reversed(self.doors) if _reads(each, loader)), None)
        for epoch in list(self.running.values()):
            if epoch.at == at and epoch is not door:
                self.end(epoch, is_complete=False)
        number = door.number if door is not None and door.at == at else self._next(at)
        found = Pass(loader, number, at)
        if door is not None:
            door.take_over(found)
        self.running[id(found)] = found
        return found

    def _next(self, at: str) -> int:
        self.numbers[at] += 1
        return self.numbers[at]

    def open(self, loader: Any) -> Pass:
        """Begin an epoch over a loader that reads another one."""
        inner = getattr(loader, "base_dataloader", loader)
        at = line_of(inner)
        for epoch in list(self.running.values()):
            if epoch.at == at:
                self.end(epoch, is_complete=False)
        found = Pass(loader, self._next(at), at)
        self.doors.append(found)
        self.running[id(found)] = found
        return found

    @never_raises
    def got(self, epoch: Pass, batch: Any, indices: Any = None) -> None:
        """Note a batch that the loop, or a loader that reads this one, has got."""
        known = epoch.known(indices) if epoch.is_map and indices is not None else None
        prints = None
        with contextlib.suppress(Exception):
            prints = fingerprints(batch, None if known is None else len(known))
        if epoch.inners:
            known = read_before(epoch.inners[-1], prints)
        epoch.drew(batch, prints, known)
        self.draws += 1
        epoch.drawn_at = self.draws
        if not epoch.is_inner:
            self.last = epoch

    def sizes(self) -> tuple[int, ...]:
        """Return the elements of each tensor in the batch that was drawn last."""
        return () if self.last is None else self.last.tensors

    @never_raises
    def entered(self, model: str, inputs: Any) -> None:
        """Find the rows of a training call among those that were drawn."""
        active = [each for each in self.running.values() if each.last is not None and not each.is_inner]
        for epoch in active:
            epoch.last.is_followed = True  # type: ignore[union-attr]
        prints = fingerprints(inputs)
        number = len(prints.rows) if prints is not None else 0
        waiting = [each for each in self.over.values() if not each.is_noted]
        if prints is None or not self._look_up(active, waiting, prints):
            latest = self._latest(active)
            if latest is not None:
                _assume(latest, number)
            elif prints is not None:
                kept = next((each.at for each in self.over.values() if _found([each], prints)[0]), "")
                fed = self.unloaded.setdefault((model, kept), Unloaded(model, users_line(), kept))
                fed.add(prints)
        for epoch in waiting:
            if all(batch.is_used for batch in epoch.waiting):
                self._note(epoch, is_complete=True)

    def _look_up(self, active: list[Pass], waiting: list[Pass], prints: Fingerprints) -> bool:
        """Find rows in passes, last of all in those of an evaluation, which may have rows of the training."""
        passes = sorted([*active, *waiting], key=lambda each: each.drawn_at, reverse=True)
        self.trained_on |= {each.at for each in passes if each.is_attributed}
        known = [each for each in passes if each.at in self.trained_on]
        others = [each for each in passes if each.at not in self.trained_on]
        if _linked(known, prints) or _linked([each for each in others if not each.is_over], prints):
            return True
        for epoch in known:
            if any(row in epoch.places for column in prints.columns for row in column):
                _assume(epoch, len(prints.rows))  # it gave these rows several times
                return True
        return any(_linked([each], prints) for each in others if each.is_over)

    def _latest(self, active: list[Pass]) -> Pass | None:
        """Return the pass that most likely gave rows which were changed on their way."""
        last = self.last
        is_waiting = last is not None and last.is_attributed and last.is_over and not last.is_noted
        if is_waiting or last in active:
            return last
        return active[-1] if active else None

    def trained(self) -> None:
        """Remember that the rows drawn last went into a step, whatever module they went through."""
        epoch = self.last
        if epoch is None:
            return
        epoch.was_trained = True
        is_known = epoch.is_attributed or epoch.at in self.trained_on
        if not is_known and id(epoch) in self.running:
            epoch.take_all()

    @never_raises
    def end(self, epoch: Pass, *, is_complete: bool) -> None:
        """Note an epoch."""
        self.running.pop(id(epoch), None)
        if epoch in self.doors:
            self.doors.remove(epoch)
        if epoch.is_over or not (epoch.count or is_complete):
            return
        epoch.is_over = True
        if epoch.is_inner:  # it is noted with the loader that reads it
            epoch.is_exhausted = is_complete
            return
        epoch.is_joined = self.is_joined
        before = self.over.pop(epoch.at, None)
        if before is not None:
            self._note(before, is_complete=True)
        if is_complete:
            self.over[epoch.at] = epoch
        is_waiting = torch.is_grad_enabled() and not all(each.is_used for each in epoch.waiting)
        if not (is_complete and is_waiting):
            self._note(epoch, is_complete=is_complete)

    def _note(self, epoch: Pass, *, is_complete: bool) -> None:
        if epoch.is_noted:
            return
        epoch.is_noted = True
        self.notes.write(epoch.event(is_complete=is_complete))
        for inner in epoch.inners:
            if inner.count and inner.is_indexed and not epoch.is_indexed:
                self.notes.write(inner.event(is_complete=inner.is_exhausted))

    @never_raises
    def end_all(self) -> None:
        """Note the epochs that are still under way, and rows that came from no loader."""
        for epoch in list(self.running.values()):
            self.end(epoch, is_complete=False)
        for epoch in self.over.values():
            self._note(epoch, is_complete=True)
        for each in self.unloaded.values():
            self.notes.write(each.event())


def _reads(door: Pass, loader: Any) -> bool:
    """Return whether a loader is the one that another reads: itself, or one of its attributes."""
    if door.loader is loader:
        return True
    return any(each is loader for each in getattr(door.loader, "__dict__", {}).values())


def _found(passes: list[Pass], prints: Fingerprints) -> tuple[list[tuple[Pass, Batch, set[int]]], int]:
    """Return the drawn rows that a call's rows hold, batch by batch, and how many of these are left.

    What one pass gave is not looked for in the next ones: labels of an evaluation are those of training, too.
    """
    used: dict[int, tuple[Pass, Batch, set[int]]] = {}
    rest = set(range(len(prints.rows)))
    for column in prints.columns:
        left = dict(enumerate(column))
        for epoch in passes:
            hits = epoch.find(left)
            for place, (batch, row) in hits.items():
                used.setdefault(id(batch), (epoch, batch, set()))[2].add(row)
                del left[place]
            rest -= hits.keys()
    return list(used.values()), len(rest)


def _linked(passes: list[Pass], prints: Fingerprints) -> bool:
    """Mark the drawn rows that a call's rows hold; return whether any are found.

    If a few are found, the others were cut or changed on their way, and are of the same batch.
    """
    used, num_left = _found(passes, prints)
    for epoch, batch, rows in used:
        batch.use(sorted(rows), 0)
        epoch.is_attributed = True
    if used and num_left:
        _, most, _ = max(used, key=lambda each: len(each[2]))
        most.use(None, num_left)
    return bool(used)


def _assume(epoch: Pass, number: int) -> None:
    """Mark the oldest batch that no step has taken: rows that were changed on their way have no fingerprint.

    Only if each rank takes one part of a batch, a call takes less than the whole.
    """
    epoch.is_attributed = True
    fresh = list(itertools.islice((each for each in list(epoch.waiting) if not each.num_used), 2))
    batch = fresh[0] if fresh else epoch.last
    if batch is not None:
        batch.is_guessed |= len(fresh) > 1
        world = dist.get_world_size() if dist.is_initialized() else 1
        is_part = bool(number) and world > 1 and number * world == len(batch)
        batch.use(None, number if is_part or batch.num_used else len(batch))
