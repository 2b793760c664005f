"""What the probes saw, as frozen and torch-free data: rules read nothing else.

A *probe* is one batch in one mode, run twice from the same state: on one virtual GPU (`single`) and under
genuine
DataParallel on all of them (`parallel`).
"""

from dataclasses import dataclass, field
from typing import Literal

from dpdemo.split import Split, split_batch

Stage = Literal["factory", "wrapper", "scatter", "replicate", "replica", "gather", "backward"]
Mode = Literal["train", "eval"]
Kind = Literal["attribute", "container", "buffer", "parameter", "gradient", "mode", "input", "argument"]


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's code."""

    file: str
    line: int
    function: str = ""
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value inside a call's arguments or its result, and the path that leads to it."""

    path: str
    type: str
    shape: tuple[int, ...] | None = None
    device: str = ""
    dtype: str = ""
    length: int | None = None
    text: str = ""
    tensors_inside: tuple[str, ...] = ()
    mutable: bool = False

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, and so cut by scatter and joined by gather."""
        return self.shape is not None

    def size(self, dim: int) -> int | None:
        """Return a tensor's size along the batch dimension, or None where it has none."""
        return (
            self.shape[dim] if self.shape is not None and -len(self.shape) <= dim < len(self.shape) else None
        )


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception: where DataParallel stood, and the user's lines it went through, innermost last."""

    stage: Stage
    type: str
    message: str
    replica: int | None = None
    places: tuple[Place, ...] = ()
    functions: tuple[str, ...] = ()

    @property
    def place(self) -> Place | None:
        """The innermost line of the user's own code."""
        return self.places[-1] if self.places else None

    def __str__(self) -> str:
        return f"{self.type}: {first_line(self.message)}"


def likely_rows(sizes: list[int]) -> int:
    """Guess the batch size: what most tensors have, the first of them where they draw, and 1 last."""
    known = [size for size in sizes if size > 1] or [size for size in sizes if size]
    return max(known, key=lambda size: (known.count(size), -known.index(size)), default=0)


def first_line(text: str) -> str:
    """Cut a message to its first line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if len(lines[0]) <= 240 else f"{lines[0][:237]}...") if lines else "(no message)"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the user's code did inside a replica: `kind` says what, `detail` with or to what."""

    kind: str
    replica: int
    detail: str = ""
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class StateChange:
    """One piece of state that a forward changed, on one device or under DataParallel."""

    path: str
    kind: Kind
    before: str
    single: str
    parallel: str
    single_changed: bool
    parallel_changed: bool
    same: bool
    place: Place | None = None
    module_type: str = ""
    like_first_chunk: bool = False


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of one call: what reached it and what came out of it."""

    index: int
    device: str
    inputs: tuple[Leaf, ...] = ()
    output: tuple[Leaf, ...] | None = None
    structure: str = ""
    raised: Raised | None = None
    threads_state: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a DataParallel module, step by step; a step that was not reached is empty."""

    num_gpus: int
    dim: int
    arguments: tuple[Leaf, ...]
    replicas: tuple[Replica, ...] = ()
    gathered: tuple[Leaf, ...] | None = None
    structure: str = ""
    raised: Raised | None = None
    warnings: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    callers_state: tuple[tuple[str, str], ...] = ()
    module: str = ""
    argument_structures: tuple[tuple[str, str], ...] = ()

    @property
    def tensor_arguments(self) -> tuple[Leaf, ...]:
        """The leaves that scatter cuts."""
        return tuple(leaf for leaf in self.arguments if leaf.is_tensor)

    @property
    def rows(self) -> int:
        """The batch size, guessed from the tensors."""
        return likely_rows([leaf.size(self.dim) or 0 for leaf in self.tensor_arguments])

    @property
    def num_chunks(self) -> int:
        """How many chunks the batch itself is cut into."""
        return split_batch(self.rows, self.num_gpus).num_chunks if self.rows else 0


@dataclass(frozen=True, slots=True)
class Single:
    """The same call on one device."""

    output: tuple[Leaf, ...] = ()
    structure: str = ""
    raised: Raised | None = None
    used_random: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """DataParallel's result against that of one device; None where it could not be compared.

    `differing` is the path of what differs first, in numbers, shape or structure: "" is the result itself.
    """

    values_equal: bool | None = None
    differing: str | None = None
    largest_difference: float = 0.0
    equals_chunkwise: bool | None = None
    blamed_argument: str = ""
    gradients_equal: bool | None = None
    sum_factor: float | None = None
    mean_factor: float | None = None
    loss_not_finite: bool = False
    single_finite: bool = True


@dataclass(frozen=True, slots=True)
class Probe:
    """One batch in one mode, on one device and under DataParallel.

    `is_real` says that an epoch surely holds a batch of this size, and is not just likely to.
    """

    batch_size: int
    mode: Mode
    is_real: bool
    single: Single
    calls: tuple[Call, ...]
    raised: Raised | None = None
    changes: tuple[StateChange, ...] = ()
    comparison: Comparison = field(default_factory=Comparison)
    gather_rehearsal: Raised | None = None
    peak_bytes: tuple[int, ...] = ()

    @property
    def call(self) -> Call | None:
        """The DataParallel call that the probe is about: the first one."""
        return self.calls[0] if self.calls else None

    @property
    def split(self) -> Split | None:
        """How the batch is cut."""
        return split_batch(self.call.rows, self.call.num_gpus) if self.call and self.call.rows else None

    def __str__(self) -> str:
        return f"batch {self.batch_size}, {self.mode}"


@dataclass(frozen=True, slots=True)
class Held:
    """A thing that a module holds outside its registered parameters, buffers and submodules."""

    path: str
    kind: str
    detail: str = ""
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """What the model is made of, read without running it."""

    model: str
    held: tuple[Held, ...] = ()
    module_types: tuple[tuple[str, str], ...] = ()
    flattens_parameters: bool = True
    forward: Place | None = None
    wrappers: tuple[str, ...] = ()
    device_ids: tuple[int, ...] = ()
    strays: tuple[tuple[str, str], ...] = ()
    pads_alone: bool = False

    def of_kind(self, kind: str) -> tuple[Held, ...]:
        """List what is held of one kind."""
        return tuple(held for held in self.held if held.kind == kind)

    @property
    def can_be_copied(self) -> bool:
        """Whether copies of it can run: those of lazy and TorchScript modules cannot."""
        return not self.of_kind("lazy") and all(name != "ScriptModule" for _, name in self.module_types)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that one check saw."""

    num_gpus: int
    scan: Scan
    probes: tuple[Probe, ...]
    building: tuple[Event, ...] = ()
    factory_raised: Raised | None = None
    parameter_bytes: int = 0

    @property
    def calls(self) -> tuple[tuple[Probe, Call], ...]:
        """All DataParallel calls, each with its probe."""
        return tuple((probe, call) for probe in self.probes for call in probe.calls)
