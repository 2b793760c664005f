"""One call of a DataParallel module, step by step, and the same call on one device."""

import re
from dataclasses import dataclass
from typing import Literal

from dpdemo.arithmetic.chunk import Split, split_batch
from dpdemo.arithmetic.rows import is_for_each_gpu, likely_rows, sizes_along
from dpdemo.results.findings import Place

Stage = Literal["factory", "wrapper", "scatter", "replicate", "replica", "gather", "backward"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value inside a call's arguments or its result, and its path; `observing/leaves.py` fills it in."""

    path: str
    type: str
    shape: tuple[int, ...] | None = None
    device: str = ""
    dtype: str = ""
    length: int | None = None
    text: str = ""
    tensors_inside: tuple[str, ...] = ()
    adds_up_to: tuple[int, ...] = ()
    """Of whole numbers: what they climb to, and their sum; of rows of sizes the sum of their products."""
    climb: tuple[int, int] | None = None
    """Of whole numbers that climb from 0: the last, and the largest step."""
    repeated: bool = False
    """Whether it is one number, over and over: what a program makes that means one for each GPU."""

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, and so cut by scatter and joined by gather."""
        return self.shape is not None

    @property
    def fields(self) -> list[str]:
        """Of an object: its attributes, or keys, that hold tensors."""
        return list(dict.fromkeys(re.split(r"[ .\[]", name, maxsplit=1)[0] for name in self.tensors_inside))

    def size(self, dim: int) -> int | None:
        """Return a tensor's size along the batch dimension, or None where it has none."""
        return (
            self.shape[dim] if self.shape is not None and -len(self.shape) <= dim < len(self.shape) else None
        )


@dataclass(frozen=True, slots=True)
class RaisedError:
    """An exception: where DataParallel stood, and the user's lines it went through, innermost last.

    `raised` (`recording/drafts.py`) fills it in.
    """

    stage: Stage
    type: str
    message: str
    replica: int | None = None
    places: tuple[Place, ...] = ()
    functions: tuple[str, ...] = ()
    leaves: bool = False
    """Whether it is no Exception, but sys.exit() or its like."""
    source: str = ""
    """The text of the user's functions that it went through."""

    @property
    def place(self) -> Place | None:
        """The innermost line of the user's own code."""
        return self.places[-1] if self.places else None

    @property
    def symptom(self) -> str:
        """The symptom that a finding explains if it knows why this was raised."""
        return f"raises {self}"

    def __str__(self) -> str:
        return f"{self.type}: {first_line(self.message)}"


def first_line(text: str) -> str:
    """Cut a message to its first line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if len(lines[0]) <= 240 else f"{lines[0][:237]}...") if lines else "(no message)"


HOOKS_OF = {
    "register_forward_hook": "_forward_hooks",
    "register_forward_pre_hook": "_forward_pre_hooks",
    "register_full_backward_hook": "_backward_hooks",
}
"""The dict of hooks that a method of nn.Module adds to: replicas share it with their original."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the user's code did inside a replica: `kind` says what, `detail` with or to what."""

    kind: str
    replica: int
    detail: str = ""
    place: Place | None = None
    is_quiet: bool = False
    """Of a hook that forward puts in: whether it keeps nothing."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of one call: what reached it and what came out of it."""

    index: int
    inputs: tuple[Leaf, ...] = ()
    output: tuple[Leaf, ...] | None = None
    structure: str = ""
    raised: RaisedError | None = None
    threads_state: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a DataParallel module, step by step; a step that was not reached is empty.

    `Draft.freeze` (`recording/drafts.py`) fills it in.
    """

    num_gpus: int
    dim: int
    arguments: tuple[Leaf, ...]
    replicas: tuple[Replica, ...] = ()
    gathered: tuple[Leaf, ...] | None = None
    structure: str = ""
    raised: RaisedError | None = None
    warnings: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    callers_state: tuple[tuple[str, str], ...] = ()
    argument_structures: tuple[tuple[str, str], ...] = ()
    pictures: int = 0
    """How many pictures a list among the arguments holds, which is then the batch."""
    shares: tuple[int, ...] = ()
    """The rows of each chunk, where the program cut otherwise than DataParallel."""
    planned: int = 0
    """The rows that the arguments were made for; 0 where that is not known."""

    @property
    def tensor_arguments(self) -> tuple[Leaf, ...]:
        """The leaves that scatter cuts."""
        return tuple(leaf for leaf in self.arguments if leaf.is_tensor)

    @property
    def errors(self) -> tuple[RaisedError, ...]:
        """The exceptions of its replicas."""
        return tuple(replica.raised for replica in self.replicas if replica.raised is not None)

    @property
    def rows(self) -> int:
        """The batch size: what the arguments were made for, or else guessed from the tensors."""
        if self.pictures:
            return self.pictures
        if self.planned and any(leaf.size(self.dim) == self.planned for leaf in self.tensor_arguments):
            return self.planned
        of_batch = [leaf for leaf in self.tensor_arguments if not self.is_for_each_gpu(leaf)]
        leaves = of_batch or self.tensor_arguments
        owners = [re.split(r"[.\[]", leaf.path, maxsplit=1)[0] for leaf in leaves]
        return likely_rows(sizes_along([leaf.shape or () for leaf in leaves], self.dim), owners)

    def is_for_each_gpu(self, leaf: Leaf) -> bool:
        """Return whether an argument is one number for each GPU."""
        return is_for_each_gpu(leaf.size(self.dim), self.num_gpus, repeated=leaf.repeated)

    @property
    def num_chunks(self) -> int:
        """How many chunks the batch itself is cut into."""
        return self.split(self.rows).num_chunks if self.rows else 0

    def split(self, rows: int) -> Split:
        """Split so many rows: as the program did itself if it cut as many, else by torch's rule."""
        if self.shares and sum(self.shares) == rows:
            return Split(rows, self.num_gpus, tuple(enumerate(self.shares)))
        return split_batch(rows, self.num_gpus)


@dataclass(frozen=True, slots=True)
class Single:
    """The same call on one device."""

    output: tuple[Leaf, ...] = ()
    raised: RaisedError | None = None
    used_random: bool = False
    writes_parameters: bool = False
    """Whether forward writes to parameters in place, though perhaps the numbers that they have already."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor of the result, by path."""
        return {leaf.path: leaf.shape for leaf in self.output if leaf.shape is not None}
