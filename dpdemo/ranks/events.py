"""The protocol between a rank and its watcher: a dataclass for each kind of event, written as a line of JSON.

Observers (`observe/`) write them into the rank's file, `log.py` reads them; `deadlocks.py`, `mistakes/` and
`report.py` compare them. A new kind of event is a new class here: its fields are its form on disk.
`at` is always a line of the program, `file:line`; `model` is a name that all ranks give the same model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar, Self

VERSION = 1
"""Written first into each file; a file of another version is not read."""
POINT_TO_POINT = {"send", "recv_", "recv_any_source_"}
NEW_GROUP = "groups of"
"""Beginning of the name of a sequence of `new_group` calls; each is noted like a collective."""


@dataclass(frozen=True)
class Event:
    """Something that one rank did, as it noted it."""

    KINDS: ClassVar[dict[str, type[Event]]] = {}

    def __init_subclass__(cls) -> None:
        Event.KINDS[cls.__name__] = cls

    def to_line(self) -> bytes:
        """Return the event as a line of JSON."""
        return json.dumps({"e": type(self).__name__, **vars(self)}).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes | str) -> Self:
        """Return the event of a line.

        Raises:
            ValueError, TypeError, KeyError: the line is cut off, or of another version.

        """
        values = json.loads(line)
        made: Any = Event.KINDS[values.pop("e")](**{name: _frozen(value) for name, value in values.items()})
        return made  # type: ignore[no-any-return]


def _frozen(value: Any) -> Any:
    """Return JSON's lists as tuples."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return {name: _frozen(each) for name, each in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True)
class Began(Event):
    """The process opened its file (`observe/notes.py`)."""

    version: int = VERSION


@dataclass(frozen=True)
class Joining(Event):
    """The rank is about to join a process group (`observe/waits.py`)."""

    rank: int
    size: int


@dataclass(frozen=True)
class Joined(Event):
    """The rank has joined a process group; ranks of one world have the same `id` (`observe/waits.py`)."""

    rank: int
    size: int
    id: str
    at: str = ""


@dataclass(frozen=True)
class Group(Event):
    """The ranks of a group, before its first collective (`observe/collectives.py`)."""

    group: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Collective(Event):
    """A collective, a send or a recv is about to begin (`observe/collectives.py`)."""

    group: str
    n: int
    """Its number in the group, from 1."""
    op: str
    """The operator of `c10d`, such as `allreduce_`; for a new group the function."""
    at: str
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    bytes: int = 0
    backward: int = 0
    """The backward passes that the rank has averaged before."""
    same: tuple[tuple[int, ...], ...] | None = None
    """Shapes that must be equal on all ranks."""
    splits: tuple[tuple[int, ...], ...] | None = None
    """Number of elements that the rank gets from each rank, and sends to each."""
    root: int | None = None
    reduce: str | None = None
    peer: int | None = None
    """Of a send or recv the other rank; -1 is any."""
    tag: int | None = None
    ranks: tuple[Any, ...] | None = None
    """The ranks that a new group is made of."""
    members: tuple[int, ...] = ()
    """The ranks that have to make a new group."""
    groups: int | None = None
    """Groups that the rank was in before it made one under local synchronization."""


@dataclass(frozen=True)
class Wait(Event):
    """The rank has been blocked in torch.distributed for a second (`observe/waits.py`)."""

    what: str
    at: str
    is_setup: bool = False
    backward: int = 0
    unused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure(Event):
    """An exception that nobody caught (`observe/errors.py`)."""

    text: str
    at: str
    is_lost: bool = False
    """Whether it only tells that the connection to another rank broke."""
    hints: tuple[str, ...] = ()
    t: float = 0.0
    traceback: str | None = None
    """The traceback, if the launcher prints it."""


@dataclass(frozen=True)
class ModelMade(Event):
    """A module was wrapped, or is known as the outermost of those under FSDP (`observe/training.py`)."""

    model: str
    name: str
    """The user's class."""
    wrapper: str
    ranks: tuple[int, ...]
    at: str


@dataclass(frozen=True)
class Rows(Event):
    """A wrapped module was called in training (`observe/training.py`)."""

    model: str
    sum: int
    """Checksum of the inputs."""
    number: int
    """Elements of the first input."""
    at: str
    drawn: tuple[int, ...] = ()
    """Elements of each tensor in the batch that was drawn last."""


@dataclass(frozen=True)
class Statistics(Event):
    """Running statistics of each BatchNorm that is not synced (`observe/training.py`)."""

    model: str
    step: int
    stats: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Parameters(Event):
    """A checksum of the parameters that must be equal on all ranks (`observe/training.py`)."""

    model: str
    sum: int
    steps: int
    """The optimizer steps made before."""
    at: str
    added: tuple[str, ...] = ()
    """Parameters that were not trained when the model was wrapped."""


@dataclass(frozen=True)
class Unsynced(Event):
    """An optimizer made a step after no gradient was averaged, the first time (`observe/training.py`)."""

    model: str
    at: str
    bypass: str = ""
    """The line that took `.module` of the wrapper, if one did."""
    unused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unstepped(Event):
    """A model had backward passes, and no step of an optimizer changed it (`observe/training.py`)."""

    model: str
    wrapper: str


@dataclass(frozen=True)
class ByHand(Event):
    """Sums over the steps of an optimizer whose parameters are under no wrapper (`observe/training.py`)."""

    model: str
    ranks: tuple[int, ...]
    at: str = ""
    """The line of the first step."""
    is_idle: bool = False
    """Whether no parameter ever had a gradient."""
    is_local: bool = False
    """Whether parameters were reduced themselves."""
    is_alone: bool = False
    """Whether the ranks exchanged far less than the parameters between the steps."""
    all: int = 0
    """Steps whose gradients were all reduced; then those of which some, and none were."""
    some: int = 0
    none: int = 0


@dataclass(frozen=True)
class Trained(Event):
    """Sums over the calls of a wrapped module, at the end (`observe/training.py`)."""

    model: str
    forwards: int
    backwards: int
    steps: int
    shapes: dict[str, int]
    """Forward calls by their shapes, `[4, 8] → [4, 1]`."""
    skipped: int = 0
    """Steps that a GradScaler left out."""


@dataclass(frozen=True)
class Epoch(Event):
    """A pass over a DataLoader is over, or was left (`observe/loaders.py`)."""

    at: str
    """The line that made the loader."""
    number: int
    count: int
    """Samples drawn."""
    sum: int
    """Checksum of their indices, in order."""
    dataset: int = 0
    """Checksum that tells shards of a data set apart."""
    length: int | None = None
    """Samples of the data set."""
    drawn: tuple[int, ...] | None = None
    """The indices, if they are few enough."""
    sampler: str = ""
    set_epoch: int | None = None
    is_distributed: bool = False
    is_shuffled: bool = False
    is_indexed: bool = True
    is_complete: bool = True
    was_trained: bool = True


@dataclass(frozen=True)
class Loss(Event):
    """A reduction of a loss got its gradient (`observe/losses.py`)."""

    at: str
    number: int
    """The backward passes of that line, from 1."""
    place: int
    """The reduction's place in the graph."""
    name: str
    count: float
    """Elements that it averages over."""
    weight: float
    """Weight of each element in the loss that is averaged over ranks."""
    drawn: tuple[int, ...] = ()
    """Elements of each tensor in the batch that was drawn last."""


@dataclass(frozen=True)
class FileWritten(Event):
    """A file was opened for writing from its beginning (`observe/files.py`)."""

    path: str
    collectives: int
    """The collectives that the rank has made before."""
    at: str


@dataclass(frozen=True)
class Ended(Event):
    """The rank came to its end (`observe/follow.py`)."""

    peak_bytes: dict[str, int]
    unused: tuple[str, ...] = ()
    """Parameters without a gradient."""
    backward: int = 0
