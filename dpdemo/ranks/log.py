"""One rank as its watcher sees it: its notes (collectives, waits, errors, facts for the report) and its end.

A rank appends a line to `PID.jsonl` for each event (`observe/notes.py` writes, `events.py` defines them).
Collectives are kept until all members of their group have made them; sums stay for the report.
"""

import contextlib
import math
from collections import deque
from pathlib import Path

from dpdemo.ranks.events import (
    NEW_GROUP,
    POINT_TO_POINT,
    VERSION,
    Began,
    Collective,
    Ended,
    Event,
    Failure,
    Group,
    Joined,
    Joining,
    Wait,
)

NOTES = "DPDEMO_RANK_NOTES"  # the variable with the folder in which ranks note what they do
FOLDER = "dpdemo-ranks-"
"""Beginning of that folder's name; the process that reads the notes, or outlives their reader, follows."""
_MAX_SPLITS = 8
PAIR = "pair of"
"""Name of the sequence of sends from one rank to another: a send and its recv are a collective of two."""
BROKEN = ".broken"  # the ending of notes that could not be written to the end
_NAMES = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce_coalesced",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather_coalesced",
    "allgather_into_tensor_coalesced_": "all_gather_into_tensor",
    "_allgather_base_": "all_gather_into_tensor",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter_tensor",
    "alltoall_base_": "all_to_all_single",
    "alltoall_": "all_to_all",
}


def public_name(operator: str) -> str:
    """Return the function of torch.distributed behind an operator `c10d.*`."""
    return _NAMES.get(operator, operator.strip("_"))


class RankLog:
    """The events of one rank, in order, and how its process ended."""

    def __init__(self, number: int, path: Path) -> None:
        self.number, self.path = number, path
        self.sums: dict[str, list[int]] = {}  # by public name: how many collectives, and their bytes
        self.members: dict[str, tuple[int, ...]] = {}  # by group: the ranks in it
        self.counts: dict[str, int] = {}  # by group or pair: the collectives begun
        self.open: dict[str, deque[Collective]] = {}
        """By group or pair: collectives that some member has not begun."""
        self.last: Collective | None = None
        self.waiting: Wait | None = None  # the line where the rank is blocked, or None while it computes
        self.error: Failure | None = None
        self.setups = 0  # number of process groups that it has set up or left
        self.events: list[Event] = []  # all but collectives and waits, which would be too many
        self.end: Ended | None = None
        self.world: tuple[int, int] | None = None
        """Its rank and the number of ranks, once it has joined a process group."""
        self.joining: tuple[int, int] | None = None
        """Its rank and the number of ranks while it joins a process group."""
        self.world_id = ""
        self.code: int | None = None  # the exit code, or None while the process runs
        self.ended_at = math.inf  # the time when the process ended
        self.is_broken = False
        """Whether notes are missing, since the disk is full: then nobody knows who waits for whom."""
        self._num_read = 0

    @property
    def has_failed(self) -> bool:
        """Whether its process failed, or is about to end by an error."""
        return bool(self.code) or (self.code is None and self.error is not None)

    @property
    def has_ended(self) -> bool:
        """Whether it came to its end, though the process may take its time."""
        return not self.has_failed and (self.code == 0 or self.end is not None)

    @property
    def is_consequence(self) -> bool:
        """Whether its error only tells that another rank is gone."""
        return self.error is not None and self.error.is_lost

    def exit_code(self) -> int:
        """Return the exit code for the report."""
        return 1 if self.error else self.code or 0

    def read(self) -> None:
        """Read what was noted since the last time."""
        if not self.is_broken and self.path.with_suffix(BROKEN).exists():
            self.path, self.is_broken = self.path.with_suffix(BROKEN), True
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._num_read)
            text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._num_read += len(whole)
            for line in whole.splitlines():
                with contextlib.suppress(ValueError, TypeError, KeyError):  # a full disk cut it off
                    self.take(Event.from_line(line))

    def take(self, event: Event) -> None:
        """Add an event."""
        if isinstance(event, Collective):
            self._collective(event)
        elif isinstance(event, Wait):
            self.waiting = event
        else:
            self.events.append(event)
        if isinstance(event, Group):
            self.members[event.group] = event.ranks
        elif isinstance(event, Failure):
            self.error = event
        elif isinstance(event, Ended):
            self.end, self.waiting = event, None
        elif isinstance(event, Joining | Joined):
            self._join(event)
        elif isinstance(event, Began):
            self.is_broken |= event.version != VERSION

    def _join(self, event: Joining | Joined) -> None:
        place = event.rank, event.size
        if self.number < 0:  # no launcher of ours gave it one
            self.number = event.rank
        if isinstance(event, Joining):
            self.joining = place
        else:
            self.world, self.joining, self.waiting = place, None, None
            self.world_id, self.setups = event.id, self.setups + 1

    def _collective(self, event: Collective) -> None:
        self.last, self.waiting = event, None
        group = event.group
        if group.startswith(NEW_GROUP):
            self.events.append(event)
        else:
            count = self.sums.setdefault(public_name(event.op), [0, 0])
            count[0] += 1
            count[1] += event.bytes
        if event.op in POINT_TO_POINT:
            me, peer = self.number, -1 if event.peer is None else event.peer
            pair = (me, peer) if event.op == "send" else (peer, me)
            group = f"{PAIR} {pair} with tag {event.tag} in {group}"
            self.members[group] = pair
        self.counts[group] = self.counts.get(group, 0) + 1
        self.open.setdefault(group, deque()).append(event)

    def describe(self, event: Collective | None = None) -> str:
        """Name a collective, the last one by default, with its line."""
        shown = event or self.last
        if shown is None:
            return f"rank {self.number} had begun no collective"
        way = "to" if shown.op == "send" else "from"
        peer = "" if shown.peer is None else f" {way} rank {shown.peer}"
        shapes = ", ".join(str(list(shape)) for shape in shown.shapes[:3])
        more = ", …" if len(shown.shapes) > 3 else ""
        what = f" of {shapes}{more} {shown.dtype}" if shapes else ""
        reduction = "" if shown.reduce in {None, "SUM"} else f", {shown.reduce}"
        splits = "" if shown.splits is None or shown.root is not None else _splits(*shown.splits)
        root = "" if shown.root is None else f", root {shown.root}"
        ranks = "" if shown.ranks is None else f" of ranks {', '.join(map(_as_list, shown.ranks))}"
        within = "" if shown.group.startswith((NEW_GROUP, "0 of ")) else f" in group {shown.group}"
        call = f"{public_name(shown.op)} #{shown.n}{peer}{what}{splits}{reduction}{root}{ranks}{within}"
        return f"rank {self.number}: {call} at {shown.at}"

    def whereabouts(self) -> str:
        """Describe where the rank is blocked, or else which collective it began last."""
        place = self.waiting
        if place is None or (self.last is not None and place.at == self.last.at):
            return self.describe()
        return f"rank {self.number}: in {place.what} at {place.at}"


def _splits(got: tuple[int, ...], sent: tuple[int, ...]) -> str:
    """Describe how many elements come from and go to each rank, if these differ."""
    if len(set(got)) < 2 and len(set(sent)) < 2:
        return ""
    gets, sends = (", ".join(map(str, each[:_MAX_SPLITS])) for each in (got, sent))
    more = ", …" if len(got) > _MAX_SPLITS else ""
    return f" (gets {gets}{more}; sends {sends}{more})"


def _as_list(given: object) -> str:
    return str(list(given)) if isinstance(given, tuple) else str(given)
