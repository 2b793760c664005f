"""What the probes saw, as frozen and torch-free data: rules read nothing else.

A *probe* is one batch in one mode, run twice from the same state: on one virtual GPU (`single`) and under
genuine DataParallel on all of them (`parallel`).
"""

import math
import re
from dataclasses import dataclass, field, replace
from typing import Literal

from dpdemo.arithmetic.chunk import Split, split_batch
from dpdemo.arithmetic.rows import is_for_each_gpu, likely_rows, sizes_along
from dpdemo.arithmetic.weights import Weight, split_by_weights
from dpdemo.reports.check import Place

Stage = Literal["factory", "wrapper", "scatter", "replicate", "replica", "gather", "backward"]
Mode = Literal["train", "eval"]
Kind = Literal[
    "attribute",
    "container",
    "module",
    "hooks",
    "buffer",
    "parameter",
    "gradient",
    "mode",
    "input",
    "argument",
    "outer",
]


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
    numbers_inside: tuple[tuple[str, int], ...] = ()
    """Of an object: its lists of numbers, or of as many numbers each, and how long they are."""
    is_mapping: bool = False
    home: str = ""
    """The module that the class of an object is defined in, where it is there by its name."""
    repeated: bool = False
    """Whether it is one number, over and over: what a program makes that means one for each GPU."""

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
    leaves: bool = False
    """Whether it is no Exception, but sys.exit() or its like."""

    @property
    def place(self) -> Place | None:
        """The innermost line of the user's own code."""
        return self.places[-1] if self.places else None

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
    own: str = ""
    """What the function there calls a tensor on the replica's own GPU; of a hook: the dict that it is in."""
    hook: Place | None = None
    """Of a hook that is put in: where it is."""


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
    written: str = ""
    """The statement that writes to it, where one does."""
    owner: str = ""
    """The module whose method that is."""
    needs_self_only: bool = False
    """Whether that statement reads nothing but `self`, and so can stand anywhere."""
    harmless: bool = False
    """Whether nothing depends on it: a second call leaves it as it is, and has the same results."""
    is_of_backward: bool = False
    """Whether going backward has changed it, and not forward."""


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
    pictures: int = 0
    """How many pictures a list among the arguments holds, which is then the batch."""
    shares: tuple[Weight, ...] = ()
    """The weights, or chunks, of a WeightedDataParallel."""
    returned_at: Place | None = None
    """Where forward returned, if it has several places for it."""
    planned: int = 0
    """The rows that the arguments were made for; 0 where that is not known."""

    @property
    def tensor_arguments(self) -> tuple[Leaf, ...]:
        """The leaves that scatter cuts."""
        return tuple(leaf for leaf in self.arguments if leaf.is_tensor)

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
        """Say how so many rows are cut."""
        return split_by_weights(rows, self.shares) if self.shares else split_batch(rows, self.num_gpus)


@dataclass(frozen=True, slots=True)
class Single:
    """The same call on one device."""

    output: tuple[Leaf, ...] = ()
    structure: str = ""
    raised: Raised | None = None
    used_random: bool = False
    warnings: tuple[str, ...] = ()
    writes_parameters: bool = False
    """Whether forward writes to parameters in place, though perhaps the numbers that they have already."""


@dataclass(frozen=True, slots=True, order=True)
class Reduction:
    """What a program makes of its replicas' losses: the gradient that comes back to each."""

    weights: tuple[float, ...]
    is_librarys: bool = False
    """Whether an installed package goes backward, as transformers' Trainer does, not the user's line."""


UNEQUAL = 2e-3
"""Gradients that are farther than this from those of one GPU are others, and not rounded."""


@dataclass(frozen=True, slots=True)
class LossGradients:
    """The parameters' gradients g of a loss on one GPU, and g_i of each replica's number, by dot products.

    So the gradients of any weighted sum of the replicas' losses can be compared with those of one GPU:
    |Σ w_i g_i - g|² = Σ w_i w_j g_i·g_j - 2 Σ w_i g_i·g + g·g.
    """

    square: float
    """g·g"""
    dots: tuple[float, ...]
    """g_i·g"""
    products: tuple[tuple[float, ...], ...]
    """g_i·g_j"""
    is_sum: bool = True
    """Whether some weights of the losses give the gradients of one GPU: it is a sum over samples."""

    def factor(self, weights: tuple[float, ...]) -> float:
        """Return how many times those of one GPU the gradients are, in its direction."""
        return sum(w * dot for w, dot in zip(weights, self.dots, strict=True)) / self.square

    def error(self, weights: tuple[float, ...]) -> float:
        """Return how far the gradients are from those of one GPU, as a share of their length."""
        rows = zip(weights, self.products, strict=True)
        mixed = sum(w * sum(v * p for v, p in zip(weights, row, strict=True)) for w, row in rows)
        left_over = mixed - 2 * self.square * self.factor(weights) + self.square
        return math.sqrt(max(left_over, 0.0) / self.square)

    @property
    def sum(self) -> tuple[float, ...]:
        """The weights of `.sum()`."""
        return (1.0,) * len(self.dots)

    @property
    def mean(self) -> tuple[float, ...]:
        """The weights of `.mean()`."""
        return (1 / len(self.dots),) * len(self.dots)


@dataclass(frozen=True, slots=True)
class OfThread:
    """A ContextVar or a `threading.local()` of a user's module: what it is, its name there, and its value."""

    kind: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Mixing:
    """Where samples of a batch are first mixed, as two plain calls have shown, of a batch and of a chunk."""

    place: Place | None
    """The line of forward; None where it is not known."""
    modules: tuple[str, ...]
    """The paths of modules that mix what they are given unmixed."""
    alone: tuple[str, ...]
    """The paths of those that do not."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """DataParallel's result against that of one device; None where it could not be compared.

    `differing` is the path of what differs first, in numbers, shape or structure: "" is the result itself.
    """

    values_equal: bool | None = None
    differing: str | None = None
    largest_difference: float = 0.0
    equals_chunkwise: bool | None = None
    blamed: tuple[str, ...] = ()
    """Arguments that must not be cut: with them whole, results are those of one GPU."""
    gradients_equal: bool | None = None
    loss_not_finite: bool = False
    single_finite: bool = True
    loss: LossGradients | None = None
    loss_path: str | None = None
    single_backward_raised: Raised | None = None
    """What going backward raised where DataParallel is not to blame, so that no gradients were compared."""
    backward_raised: Raised | None = None
    """What going backward raised under DataParallel, though it did not on one GPU."""
    heaviest: str = ""
    """Which sample or token counts most under `.mean()`, and how much."""
    better_dim: int | None = None
    """Another dimension along which the batch can be cut with one GPU's results."""
    batch_dims: tuple[tuple[str, int], ...] = ()
    """The dimension on which each argument has the batch, where it is not the same one for all."""
    columns: tuple[str, ...] = ()
    """Arguments of shape (1,) that forward wants as a column once each sample has its own."""
    lone_rows: tuple[str, ...] = ()
    """Arguments of one row that forward does not take with a row for each sample."""
    scalars: tuple[tuple[str, str], ...] = ()
    """Arguments without dimensions, each with the call that makes of it what forward takes as well."""
    reordered: tuple[tuple[str, int], ...] = ()
    """Results whose rows are in another order, each with the number of steps that it was flattened from."""
    summed: tuple[str, ...] = ()
    """Numbers of one GPU's result to which the replicas' add up, as a count or a sum of losses does."""
    of_the_batch: tuple[str, ...] = ()
    """Numbers that are neither the sum nor the mean of the replicas': where chunks are unequal, means too."""
    joined: tuple[str, ...] = ()
    """Objects in the result that gather has made anew, as it does a cache that iterates over tensors."""
    needed_whole: tuple[str, ...] = ()
    """Arguments of which a replica needs all: it raised, and with all of them does not."""
    mixing: Mixing | None = None
    """Where forward mixes samples, if that is why results differ."""
    lacking: tuple[OfThread, ...] = ()
    """What the caller's thread has and replicas do not, if that is why they have other results."""

    @property
    def is_along_another(self) -> bool:
        """Whether the batch, or that of some argument, is on another dimension than the one that is cut."""
        return self.better_dim is not None or bool(self.batch_dims)

    def without_gradients(self) -> "Comparison":
        """Leave out what going backward showed."""
        return replace(
            self, gradients_equal=None, loss_not_finite=False, single_finite=True, loss=None, loss_path=None,
            single_backward_raised=None, backward_raised=None, heaviest="",
        )  # fmt: skip


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
    norms_batches: bool = False
    """Whether the model has BatchNorm, whose results in training are those of a chunk."""
    is_programs: bool = False
    """Whether it is known what a program does with the result: it went backward, or wants no gradients."""
    reductions: tuple[Reduction, ...] = ()
    """How the program went backward through the replicas' losses."""

    def without_gradients(self) -> "Probe":
        """Leave out what going backward showed."""
        changes = tuple(one for one in self.changes if not one.is_of_backward)
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


MIXED = "mixed"
"""The beginning of a nesting whose levels are not alike: the names of all its classes follow."""
MOVED_ALONG = ", moved with the model"
"""Said of a tensor that the model's own `_apply`, `to` or `cuda` takes along, and that no replica gets."""


@dataclass(frozen=True, slots=True)
class Held:
    """A thing that a module holds outside its registered parameters, buffers and submodules."""

    path: str
    kind: str
    detail: str = ""
    place: Place | None = None
    layout: str = ""
    """Of a list, tuple or dict that holds nothing else: "list of tensors", "dict of modules"; or "names of
    modules" where keys can be names of modules."""
    tensors: tuple[str, ...] = ()
    """Of an object: its attributes that are tensors; of a function: the names that it has from around it."""
    nesting: tuple[str, ...] = ()
    """What stands around tensors, or modules of the model, the outermost first: "list", "dict", "tuple",
    "namedtuple" or "object"."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What the model is made of, read without running it."""

    model: str
    held: tuple[Held, ...] = ()
    module_types: tuple[tuple[str, str], ...] = ()
    flattens_parameters: bool = True
    forward: Place | None = None
    wrappers: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    """Those wrappers whose parameters are not trained, where others are."""
    device_ids: tuple[int, ...] = ()
    strays: tuple[tuple[str, str], ...] = ()
    pads_alone: bool = False
    shortened: tuple[tuple[str, float, float], ...] = ()
    """Embeddings that shorten their rows in forward: path, longest norm and its type."""
    is_training: bool = True
    """Whether the model, as it is given, is to be trained."""
    norms: tuple[tuple[str, str, int], ...] = ()
    """BatchNorm layers: path, class and number of channels."""
    parameters: tuple[str, ...] = ()
    """The paths of its parameters, which replicas have as attributes."""
    classes: tuple[tuple[str, str], ...] = ()
    """The user's classes of its modules, with the files that define them."""
    inputs: tuple[str, ...] = ()
    """The names of forward's arguments."""
    numbers: tuple[tuple[str, int], ...] = ()
    """Whole numbers on its modules, by attribute: one of them may be a batch size."""
    together: tuple[tuple[str, ...], ...] = ()
    """The paths by which several modules hold one container, or one object of the user's."""

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
    assumed: tuple[str, ...] = ()
    """What nobody said and was worked out, such as the input."""
    is_program: bool = False
    """Whether a program ran, and did with the model's results what it does."""
    meanwhile: tuple[tuple[str, ...], ...] = ()
    """What forward changes and leaves as it was, each by the paths of modules that hold it."""

    @property
    def calls(self) -> tuple[tuple[Probe, Call], ...]:
        """All DataParallel calls, each with its probe."""
        return tuple((probe, call) for probe in self.probes for call in probe.calls)
