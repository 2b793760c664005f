"""One rank as its watcher sees it: its notes (collectives, waits, errors, facts for the report) and its end.

A rank appends a line of JSON to `PID.jsonl` for each event (`executing/rank/notes.py` writes them).
Collectives are kept until all members of their group have made them; sums stay for the report.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Event = dict[str, Any]

POINT_TO_POINT = {"send", "recv_", "recv_any_source_"}
NEW_GROUP = "groups of"
"""Name of the sequence of `new_group` calls; each is noted like a collective."""
PAIR = "pair of"
"""Name of the sequence of sends from one rank to another: a send and its recv are a collective of two."""
BROKEN = ".broken"
"""The ending of notes that could not be written to the end."""
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
        self.sums: dict[str, list[int]] = {}
        """By public name: how many collectives, and their bytes."""
        self.members: dict[str, tuple[int, ...]] = {}
        """By group: the ranks in it."""
        self.counts: dict[str, int] = {}
        """By group or pair: the collectives begun."""
        self.open: dict[str, deque[Event]] = {}
        """By group or pair: collectives that some member has not begun."""
        self.last: Event | None = None
        self.waiting: Event | None = None
        """The line where the rank is blocked, or None while it computes."""
        self.error: Event | None = None
        self.setups = 0
        """Number of process groups that it has set up or left."""
        self.facts: list[Event] = []
        self.end: Event = {}
        self.world: tuple[int, int] | None = None
        """Its rank and the number of ranks, once it has joined a process group."""
        self.joining: tuple[int, int] | None = None
        """Its rank and the number of ranks while it joins a process group."""
        self.world_id = ""
        self.code: int | None = None
        """The exit code, or None while the process runs."""
        self.ended_at = math.inf
        """The time when the process ended."""
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
        return not self.has_failed and (self.code == 0 or bool(self.end))

    @property
    def is_consequence(self) -> bool:
        """Whether its error only tells that another rank is gone."""
        return self.error is not None and bool(self.error["is_lost"])

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
                with contextlib.suppress(ValueError):  # a full disk cut it off
                    self._take(json.loads(line))

    def _take(self, event: Event) -> None:
        kind = event.pop("e")
        if kind == "collective":
            self._collective(event)
        elif kind == "group":
            self.members[event["group"]] = tuple(event["ranks"])
        elif kind == "wait":
            self.waiting = event
        elif kind == "error":
            self.error = event
        elif kind == "end":
            self.end, self.waiting = event, None
        elif kind in {"joining", "world"}:
            self._join(kind, event)
        else:
            self.facts.append({"kind": kind, **event})

    def _join(self, kind: str, event: Event) -> None:
        place = event["rank"], event["size"]
        if self.number < 0:  # no launcher of ours gave it one
            self.number = event["rank"]
        if kind == "joining":
            self.joining = place
        else:
            self.world, self.joining, self.waiting = place, None, None
            self.world_id, self.setups = event["id"], self.setups + 1

    def _collective(self, event: Event) -> None:
        self.last, self.waiting = event, None
        if event["group"].startswith(NEW_GROUP):
            self.facts.append({"kind": "new group", **event})
        else:
            count = self.sums.setdefault(public_name(event["op"]), [0, 0])
            count[0] += 1
            count[1] += event["bytes"]
        group = event["group"]
        if event["op"] in POINT_TO_POINT:
            me, peer = self.number, event["peer"]
            pair = (me, peer) if event["op"] == "send" else (peer, me)
            group = f"{PAIR} {pair} with tag {event['tag']} in {group}"
            self.members[group] = pair
        self.counts[group] = self.counts.get(group, 0) + 1
        self.open.setdefault(group, deque()).append(event)

    def describe(self, event: Event | None = None) -> str:
        """Name a collective, the last one by default, with its line."""
        shown = event or self.last
        if shown is None:
            return f"rank {self.number} had begun no collective"
        peer = f" {'to' if shown['op'] == 'send' else 'from'} rank {shown['peer']}" if "peer" in shown else ""
        shapes = ", ".join(map(str, shown["shapes"][:3])) + (", …" if len(shown["shapes"]) > 3 else "")
        what = f" of {shapes} {shown['dtype']}" if shapes else ""
        root = f", root {shown['root']}" if "root" in shown else ""
        ranks = f" of ranks {', '.join(map(str, shown['ranks']))}" if "ranks" in shown else ""
        within = "" if shown["group"].startswith((NEW_GROUP, "0 of ")) else f" in group {shown['group']}"
        call = f"{public_name(shown['op'])} #{shown['n']}{peer}{what}{root}{ranks}{within}"
        return f"rank {self.number}: {call} at {shown['at']}"

    def whereabouts(self) -> str:
        """Describe where the rank is blocked, or else which collective it began last."""
        place = self.waiting
        if place is None or (self.last is not None and place["at"] == self.last["at"]):
            return self.describe()
        return f"rank {self.number}: in {place['what']} at {place['at']}"
