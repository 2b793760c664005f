"""What a batch in one mode has shown, and all that a check saw."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from dpdemo.arithmetic.chunk import Split
from dpdemo.checking.evidence.calls import Call, Event, RaisedError, Single
from dpdemo.checking.evidence.comparison import Comparison
from dpdemo.checking.evidence.scan import Scan
from dpdemo.results.findings import Place


@dataclass(frozen=True, slots=True)
class Value:
    """The value of an attribute, argument or container at one moment."""

    type: str
    """The name of its class; "absent" where there was nothing."""
    length: int | None = None
    """Of a container: how many elements it had."""
    shape: tuple[int, ...] | None = None
    """Of a tensor or an array."""
    number: float | None = None
    """Of a tensor with one element."""
    text: str = ""
    """Of a plain value: its repr, cut short."""
    parts: "tuple[tuple[str, Value], ...]" = ()
    """Of an object: the attributes to be named."""
    requires_grad: bool = False
    """Of a tensor: whether autograd follows it."""

    @property
    def is_absent(self) -> bool:
        """Whether there was nothing."""
        return self.type == "absent"

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return self.type != "ndarray" and (self.shape is not None or self.number is not None)


ABSENT = Value("absent")


Mode = Literal["train", "eval"]

Kind = Literal[
    "attribute", "container", "module", "hooks", "buffer", "parameter", "gradient", "mode", "input",
    "argument",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class WriteStatement:
    """The statement that writes to something outside of `__init__`; empty where none is found."""

    text: str = ""
    place: Place | None = None
    stands_alone: bool = False
    """Whether it can stand behind the call: a line of the model's own forward that reads nothing but `self`,
    and nothing else there reads what it writes."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """One piece of state that a forward changed, on one device or in replicas (`observing/changed.py`)."""

    path: str
    kind: Kind
    before: Value
    single: Value
    parallel: Value
    single_changed: bool
    parallel_changed: bool
    same: bool
    place: Place | None = None
    """Where the attribute is set first."""
    module_type: str = ""
    like_first_chunk: bool = False
    follows_rows: bool = False
    """Whether, of a forward that draws random numbers, two chunks leave two values with the same numbers."""
    written: WriteStatement = WriteStatement()
    is_left: bool = False
    """Whether forward leaves a result there that autograd follows, and no forward reads it."""
    harmless: bool = False
    """Whether nothing depends on it: a second call leaves it as it is, and has the same results."""
    is_of_backward: bool = False
    """Whether going backward has changed it, and not forward."""

    @property
    def name(self) -> str:
        """The last part of its path: the attribute's own name."""
        return self.path.rpartition(".")[2]

    @property
    def is_followed(self) -> bool:
        """Whether forward has put a result that autograd follows in the place of a tensor."""
        return self.before.is_tensor and self.single.requires_grad

    @property
    def is_lost(self) -> bool:
        """Whether one GPU keeps the change and DataParallel does not."""
        return self.single_changed and not self.parallel_changed


@dataclass(frozen=True, slots=True, order=True)
class Reduction:
    """What a program makes of its replicas' losses: the gradient that comes back to each."""

    weights: tuple[float, ...]
    is_librarys: bool = False
    """Whether an installed package goes backward, as transformers' Trainer does, not the user's line."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One batch of `batch_size` rows in one mode, on one device and in replicas (`observing/judging.py`).

    `is_real` says that an epoch surely holds a batch of this size, and is not just likely to.
    """

    batch_size: int
    mode: Mode
    is_real: bool
    single: Single
    calls: tuple[Call, ...]
    raised: RaisedError | None = None
    changes: tuple[StateChange, ...] = ()
    comparison: Comparison = field(default_factory=Comparison)
    gather_rehearsal: RaisedError | None = None
    peak_bytes: tuple[int, ...] = ()
    norms_batches: bool = False
    """Whether the model has BatchNorm, whose results in training are those of a chunk."""
    is_programs: bool = False
    """Whether it is known what a program does with the result: it went backward, or wants no gradients."""
    reductions: tuple[Reduction, ...] = ()
    """How the program went backward through the replicas' losses."""

    def without_gradients(self) -> "Probe":
        """Leave out what going backward showed."""
        changes = tuple(change for change in self.changes if not change.is_of_backward)
        return replace(self, changes=changes, comparison=self.comparison.without_gradients())

    @property
    def call(self) -> Call | None:
        """The DataParallel call that the probe is about: the first one."""
        return self.calls[0] if self.calls else None

    @property
    def split(self) -> Split | None:
        """How the batch is cut."""
        return self.call.split(self.call.rows) if self.call and self.call.rows else None

    def __str__(self) -> str:
        return f"batch {self.batch_size}, {self.mode}"


@dataclass(frozen=True, slots=True)
class KeepingHook:
    """A hook that keeps something of a call, other than an entry for each GPU."""

    path: str
    """The module that it is on."""
    function: str
    names: frozenset[str]
    """The names under which it keeps what it keeps."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A dict, object or cached function outside of the model that keeps tensors for later calls."""

    name: str
    kind: str
    users: frozenset[str] = frozenset()
    """The functions that name it."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that one check saw: `engine.py` fills it in, or `programs/callcheck.py` for a program."""

    num_gpus: int
    scan: Scan
    probes: tuple[Probe, ...]
    building: tuple[Event, ...] = ()
    factory_raised: RaisedError | None = None
    assumed: tuple[str, ...] = ()
    """What nobody said and was worked out, such as the input."""
    is_program: bool = False
    """Whether a program ran, and did with the model's results what it does."""
    meanwhile: tuple[tuple[str, ...], ...] = ()
    """What forward changes and leaves as it was, each by the paths of modules that hold it."""
    caches: tuple[Cache, ...] = ()
    """What forward keeps tensors in, outside of the model, by keys that do not name a GPU."""
    split_by: str = ""
    """The function by which a program splits, where it makes no DataParallel object."""
    failed: tuple[Probe, ...] = ()
    """Full batches in a mode in which a plain call on one GPU fails."""
    kept: tuple[KeepingHook, ...] = ()
    """Hooks that keep something of a call."""

    @property
    def calls(self) -> tuple[tuple[Probe, Call], ...]:
        """All DataParallel calls, each with its probe."""
        return tuple((probe, call) for probe in self.probes for call in probe.calls)

    def events(self, kind: str) -> Iterator[tuple[Probe, Event]]:
        """List what replicas did of a kind, each with its probe."""
        return ((probe, event) for probe, call in self.calls for event in call.events if event.kind == kind)
