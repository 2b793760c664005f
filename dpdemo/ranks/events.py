"""The protocol between a rank and its watcher: a dataclass for each kind of event, written as a line of JSON.

Observers (`observe/`) write them into the rank's file, `log.py` reads them; `deadlocks.py`, `mistakes/` and
`report.py` compare them. A new kind of event is a new class here: its fields are its form on disk.
`at` is always a line of the program, `file:line`; `model` is a name that all ranks give the same model.
"""

import json
from dataclasses import astuple, dataclass, field
from typing import Any, ClassVar, Self, dataclass_transform

VERSION = 1  # written first into each file; a file of another version is not read
POINT_TO_POINT = {"send", "recv_", "recv_any_source_"}
NEW_GROUP = "groups of"
"""Beginning of the name of a sequence of `new_group` calls; each is noted like a collective."""


def loader_name(line: str, number: int) -> str:
    """Name a loader by the line that made it, and by its number among those, from 0."""
    return f"{line} (loader {number + 1})" if number else line


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Event:
    """Something that one rank did, as it noted it; each subclass is a frozen dataclass."""

    KINDS: ClassVar[dict[str, type["Event"]]] = {}

    def __init_subclass__(cls) -> None:
        Event.KINDS[cls.__name__] = dataclass(frozen=True)(cls)

    def to_line(self) -> bytes:
        """Return the event as a line of JSON."""
        return json.dumps({"e": type(self).__name__, **vars(self)}, default=astuple).encode() + b"\n"

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


class Began(Event):
    """The process opened its file (`observe/notes.py`)."""

    version: int = VERSION


class Unobserved(Event):
    """An observer, or one of its patches, could not be installed (`observe/notes.py`)."""

    what: str
    error: str


class Joining(Event):
    """The rank is about to join a process group (`observe/waits.py`)."""

    rank: int
    size: int


class Joined(Event):
    """The rank has joined a process group; ranks of one world have the same `id` (`observe/waits.py`)."""

    rank: int
    size: int
    id: str
    at: str = ""


class Group(Event):
    """The ranks of a group, before its first collective (`observe/collectives.py`)."""

    group: str
    ranks: tuple[int, ...]


class Collective(Event):
    """A collective, a send or a recv is about to begin (`observe/collectives.py`)."""

    group: str
    n: int  # its number in the group, from 1
    op: str  # the operator of `c10d`, such as `allreduce_`; for a new group the function
    at: str
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    bytes: int = 0
    backward: int = 0  # the backward passes that the rank has averaged before
    same: tuple[tuple[int, ...], ...] | None = None  # shapes without 1s, for all ranks
    splits: tuple[tuple[int, ...], ...] | None = None
    """Number of elements that the rank gets from each rank, and sends to each."""
    root: int | None = None
    reduce: str | None = None
    peer: int | None = None  # of a send or recv the other rank; -1 is any
    tag: int | None = None
    ranks: tuple[Any, ...] | None = None  # the ranks that a new group is made of
    members: tuple[int, ...] = ()  # the ranks that have to make a new group
    groups: int | None = None  # groups that the rank was in before it made one under local synchronization


class Wait(Event):
    """The rank has been blocked in torch.distributed for a second (`observe/waits.py`)."""

    what: str
    at: str
    is_setup: bool = False
    backward: int = 0
    unused: tuple[str, ...] = ()


class Failure(Event):
    """An exception that nobody caught (`observe/errors.py`)."""

    text: str
    at: str
    is_lost: bool = False  # whether it only tells that the connection to another rank broke
    hints: tuple[str, ...] = ()
    t: float = 0.0
    traceback: str | None = None  # the traceback, if the launcher prints it


class ModelMade(Event):
    """A module was wrapped, or is known as the outermost of those under FSDP (`observe/training.py`)."""

    model: str
    name: str  # the user's class
    wrapper: str
    ranks: tuple[int, ...]
    at: str


class Rows(Event):
    """A wrapped module was called in training (`observe/training.py`)."""

    model: str
    sum: int  # checksum of the inputs
    number: int  # elements of the first input
    at: str
    drawn: tuple[int, ...] = ()  # elements of each tensor in the batch that was drawn last


class Statistics(Event):
    """Running statistics of each BatchNorm that is not synced (`observe/training.py`)."""

    model: str
    step: int
    stats: dict[str, tuple[float, ...]]


class Buffers(Event):
    """The first numbers of each buffer at the end, without those of BatchNorm (`observe/training.py`)."""

    model: str
    values: dict[str, tuple[float, ...]]


class Parameters(Event):
    """A checksum of the parameters that must be equal on all ranks (`observe/training.py`)."""

    model: str
    sum: int
    steps: int  # the optimizer steps made before
    at: str
    added: tuple[str, ...] = ()  # parameters that were not trained when the model was wrapped


class Unsynced(Event):
    """The first step after a backward pass that was not averaged (`observe/training.py`)."""

    model: str
    at: str
    bypass: str = ""  # the line that took `.module` of the wrapper, if one did
    unused: tuple[str, ...] = ()
    step: int = 1
    backward_at: str = ""  # the line of the last backward pass before it
    no_sync: str = ""  # the line that told the wrapper not to average
    was_averaged: bool = False  # whether another backward pass since the step before was averaged
    was_called: bool = True  # whether the wrapper itself was ever called
    in_backward: bool = False  # whether the step was made inside a backward pass


class Unstepped(Event):
    """A model had backward passes, and no step of an optimizer changed it (`observe/training.py`)."""

    model: str
    wrapper: str


class ByHand(Event):
    """Sums over the steps of an optimizer whose parameters are under no wrapper (`observe/training.py`)."""

    model: str
    ranks: tuple[int, ...]
    at: str = ""  # the line of the first step
    is_idle: bool = False  # whether no parameter ever had a gradient
    is_local: bool = False  # whether parameters were reduced themselves
    is_sharded: bool = False  # whether parameters are each rank's own part, as in ZeRO by hand
    is_alone: bool = False  # whether the ranks exchanged far less than the parameters between the steps
    all: int = 0  # steps whose gradients were all reduced; then those of which some, and none were
    some: int = 0
    none: int = 0
    is_beside: bool = False  # whether the optimizer also has parameters of a wrapped model
    was_whole: bool = False  # whether they are the unsharded parameters that fully_shard has during a forward
    shapes: tuple[str, ...] = ()  # of the parameters
    sends_rows: bool = False
    """Whether the rank sent rows by all_to_all, as to experts, which may be each rank's own."""


class Trained(Event):
    """Sums over the calls of a wrapped module, at the end (`observe/training.py`)."""

    model: str
    forwards: int
    backwards: int
    steps: int
    shapes: dict[str, int]  # forward calls by their shapes, `[4, 8] → [4, 1]`
    is_averaged_by_hand: bool = False  # whether the program reduced its parameters themselves
    skipped: int = 0  # steps that a GradScaler left out


class Epoch(Event):
    """A pass over a DataLoader is over, or was left (`observe/loaders.py`)."""

    at: str  # the line that made the loader
    number: int
    count: int  # samples drawn
    sum: int  # checksum of their indices, in order
    dataset: int = 0  # checksum that tells shards of a data set apart
    length: int | None = None  # samples of the data set
    drawn: tuple[int | str, ...] | None = None  # the indices, if they are few enough
    sampler: str = ""
    set_epoch: int | None = None
    is_distributed: bool = False
    is_shuffled: bool = False
    is_indexed: bool = True
    is_complete: bool = True
    was_trained: bool = True
    rows: tuple[int, ...] | None = None
    """Fingerprints of the samples' content (`observe/rows.py`), if they are few enough."""
    sizes: tuple[int, ...] = ()  # the samples of each batch
    trained: int = 0  # samples that went into a training step
    used: tuple[int, ...] | None = None  # their places among those that were drawn, if they are known
    labels: dict[str, str] = field(default_factory=dict)  # by fingerprint, what short rows hold, such as `5`
    contents: int = 0  # checksum of the data set without its numbers and words, which may be a rank's own
    part: tuple[int, ...] = ()
    """The length of a Subset of the data set, and a checksum of its samples in order."""
    samplers: tuple[str, ...] = ()  # classes from the one that makes batches to the one that makes the order
    splitter: str = ""  # the class of the sampler that takes this rank's part of the order
    splits: dict[str, int] = field(default_factory=dict)
    """By class, into how many parts samplers cut the order, the last one first."""
    seed: int | None = None
    repeats: str = ""  # the class of a sampler that draws samples several times on purpose
    split: str = ""  # the function that gave this rank a part of a stream
    num_workers: int = 0
    is_persistent: bool = False
    is_joined: bool = False  # whether the program expects unequal numbers of batches: `Join`
    is_inner: bool = False  # whether another loader reads this one, and gives the loop other batches
    random: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """By library, the states from which the data set drew random numbers first, in each worker."""


class Fed(Event):
    """Rows that entered a wrapped module in training, and came from no loader (`observe/loaders.py`)."""

    model: str
    at: str
    count: int
    sum: int  # checksum of the fingerprints, in order
    rows: tuple[int, ...] | None = None  # the fingerprints, if they are few enough
    sizes: tuple[int, ...] = ()  # the rows of each call
    labels: dict[str, str] = field(default_factory=dict)
    kept: str = ""  # the loader that had given them in an earlier pass: the program kept its batches


class Loss(Event):
    """A reduction of a loss got its gradient (`observe/losses.py`)."""

    at: str
    number: int  # the backward passes of that line, from 1
    place: int  # the reduction's place in the graph
    name: str
    count: float  # elements that it averages over
    weight: float  # weight of each element in the loss that is averaged over ranks
    drawn: tuple[int, ...] = ()  # elements of each tensor in the batch that was drawn last


class FileWritten(Event):
    """A file was opened for writing from its beginning (`observe/files.py`)."""

    path: str
    collectives: int  # the collectives that the rank has made before
    at: str


class Ended(Event):
    """The rank came to its end (`observe/follow.py`)."""

    peak_bytes: dict[str, int]
    unused: tuple[str, ...] = ()  # parameters without a gradient
    backward: int = 0


# A ledger of what must agree between ranks: `steps.py`, `optimizers.py` and the observers beside them.


class Steps(Event):
    """Some optimizer steps of a model, one after another (`observe/steps.py`)."""

    model: str
    first: int  # the number of the first of them, from 1
    at: str
    sums: tuple[int, ...]  # after each step, a checksum of the parameters that must be equal on all ranks
    scales: tuple[float, ...] = ()
    """The factor of the gradients between the last backward pass and each step; 0 if unknown."""
    each: dict[str, int] | None = None  # a checksum for each parameter, after the last step of the run


class Late(Event):
    """A step trained parameters that were frozen when the model was wrapped (`observe/training.py`)."""

    model: str
    step: int
    names: tuple[str, ...]
    at: str


class Skipped(Event):
    """A batch got no backward pass before the next one was trained on (`observe/training.py`)."""

    model: str
    number: int  # the calls of the model in training before, from 1
    at: str
    had_forward: bool  # whether the model was called with it


class Mode(Event):
    """A step of a model that was put into another mode since the step before (`observe/training.py`)."""

    model: str
    step: int
    at: str
    is_train: bool


class StepLeftOut(Event):
    """A GradScaler left a step out (`observe/training.py`)."""

    model: str
    step: int  # the steps of the model before, those that were left out too
    at: str


class WrapperGone(Event):
    """A backward pass came to the output of a wrapper that is gone (`observe/training.py`)."""

    model: str
    at: str


class Hyperparameters(Event):
    """The hyperparameters of an optimizer, whenever they changed (`observe/optimizers.py`)."""

    optimizer: str
    ranks: tuple[int, ...]  # the ranks that train its parameters together
    at: str
    steps: tuple[int, ...]  # the steps that were the first to have these values, from 1
    values: tuple[dict[str, float], ...]  # those that changed, such as `lr`, or `lr of group 1`


class Scheduled(Event):
    """Sums over the calls of a learning rate scheduler, at the end (`observe/optimizers.py`)."""

    at: str  # the line that called it
    name: str
    optimizer: str
    steps: int  # the optimizer's steps
    calls: int  # steps of the scheduler
    period: int = 0  # the number of calls after which its schedule is over, if it has one
    still: int = 0
    """Optimizer steps at the end of the run with the last learning rate, if that is the lowest of all."""
    last: float = 0.0


class Metric(Event):
    """ReduceLROnPlateau got the number by which it decides (`observe/optimizers.py`)."""

    at: str
    number: int
    value: float


class Clipped(Event):
    """`clip_grad_norm_` was called with shards of FullyShardedDataParallel (`observe/optimizers.py`)."""

    at: str
    number: int
    norm: float


class NotFinite(Event):
    """A step was made with a gradient that is not finite, the first time (`observe/training.py`)."""

    what: str  # `loss`, or `gradient` of a finite loss
    step: int
    at: str
    value: str = ""


class Read(Event):
    """The program read a number of a tensor (`observe/reads.py`)."""

    at: str
    number: int  # the reads of that line, from 1
    value: float
    collectives: int  # the collectives that the rank has made before
    how: str  # the type of the number: `float`, `int` or `bool`
    is_training: bool  # whether gradients are recorded
    is_partial: bool = False
    """Whether it was a DTensor that is yet to be reduced: the number is that of the rank's part."""


class StateLoaded(Event):
    """`load_state_dict` of a module or an optimizer took a state (`observe/loads.py`)."""

    at: str
    number: int
    taken: int  # keys of the state that the module has
    given: int
    wanted: int
    prefix: str = ""
    """Words in the keys that the module lacks, or the state, and without which more keys would fit."""
    keys: tuple[str, ...] = ()  # some keys that were left out, of the state and then of the module
    of: str = ""  # the model that has parameters of the module, or of the optimizer
    is_optimizers: bool = False
    step: int = 0  # the optimizer steps made before
    sum: int = 0  # a checksum of the state
    is_own: bool = False  # whether it had the module's own tensors alone, so that nothing changed


class OnOtherGpu(Event):
    """A line put tensors on a GPU that is not the rank's current one (`observe/loads.py`)."""

    at: str
    gpu: int
    bytes: int
    what: str


class HomeGpu(Event):
    """The GPU that was current when the rank ended, or that its models are on (`observe/loads.py`)."""

    gpu: int


class Checkpoint(Event):
    """A `torch.distributed.checkpoint.save` (`observe/checkpoints.py`)."""

    at: str
    number: int
    path: str
    sums: dict[str, int]  # by key, a checksum of each value that is not sharded


class OutOfGraph(Event):
    """A collective took a tensor inside the graph of a backward pass (`observe/graph.py`)."""

    op: str
    at: str
    reduce: str = ""
    backward_at: str = ""
    is_lost: bool = False  # whether no gradient came to the parameters before what the collective sent away
    has_own: bool = False
    """Whether the program put the rank's own tensor, with its history, among those that it gathered."""


CUT_OFF = "cut off"  # kind of a Trap that is none: accelerate cut the padding off what it gathered


class Trap(Event):
    """A call that is known to give wrong numbers on several ranks (`observe/traps.py`)."""

    kind: str
    at: str
    detail: str = ""


class Replicated(Event):
    """`DTensor.from_local` took a tensor as the same on all ranks (`observe/dtensors.py`)."""

    at: str
    number: int
    ranks: tuple[int, ...]
    sum: int
    values: tuple[float, ...]


class SameRows(Event):
    """Tensor parallelism joins these ranks: they compute the same rows (`observe/dtensors.py`)."""

    ranks: tuple[int, ...]


class PathMade(Event):
    """The program made a folder or a file (`observe/files.py`)."""

    at: str
    number: int
    path: str
    is_folder: bool = False
    is_named_by_chance: bool = False  # whether its name has the time of the day, or the number of the process


class Drawn(Event):
    """A line of the program drew random numbers (`observe/draws.py`)."""

    at: str
    number: int
    sum: int
    step: int  # the optimizer steps made before
    name: str
    shape: tuple[int, ...]


# --- noted by `exec --ranks --check` alone (`against/`): what one process is given, and what is compared ---


HOOK = "a communication hook changes the gradients of DistributedDataParallel"  # the text of a remark


class NotedBatch(Event):
    """The k-th batch of a pass over a DataLoader; its samples are in the rank's store (`against/rows.py`)."""

    at: str
    number: int  # the passes begun at that line, from 1
    k: int
    is_collated: bool
    """Whether `collate_fn` can make it again of the samples; if not, the batch itself is stored."""
    sum: int  # checksum of the batch
    stored: int
    turn: int = 0  # the rank that gets the batch, where accelerate has rank 0 read those of all


class NotedPass(Event):
    """A pass over a DataLoader gave rows to a backward pass, the first time (`against/passes.py`)."""

    at: str
    number: int
    made: str  # the line that made the loader, and its number there
    length: int | None = None


class NotedFrozen(Event):
    """The buffers and frozen parameters of a model at its first call (`against/frozen.py`)."""

    kind: str
    number: int  # its place among the models of its kind, from 1
    stored: int


class NotedDraw(Event):
    """Numbers that were drawn, or copied to a GPU, outside a DataLoader (`against/draws.py`)."""

    name: str
    at: str
    k: int
    stored: int
    passes: int = 0  # the backward passes before it


class NotedStep(Event):
    """An optimizer is about to make a step; its gradients are in the rank's store (`against/steps.py`)."""

    optimizer: int  # by the order in which optimizers were made
    step: int
    at: str
    stored: int
    names: tuple[str, ...] = ()
    pieces: tuple[int, ...] = ()  # of each parameter, which shard the rank has; -1 is the whole
    sums: tuple[int, ...] = ()  # checksums of the parameters before the step
    norms: tuple[int, ...] = ()  # rows of each call of a BatchNorm that is not synced
    rows: tuple[int, ...] = ()  # rows of each training call of an outermost module
    is_skipped: bool = False  # whether a gradient scaler left the step out
    dtype: str = "float32"  # the lowest precision that was met
    owner: int = -1  # the first of the ranks that tensor parallelism joins, with the same rows; -1: itself


class Touched(Event):
    """A file or folder was opened for writing or made, the first time (`against/files.py`)."""

    path: str
    existed: bool


class Remark(Event):
    """Something that the reader of a comparison must know (`against/`)."""

    text: str
    is_fatal: bool = False  # whether nothing can be compared
