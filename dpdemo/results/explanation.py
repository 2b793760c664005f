"""The result of `explain`: one batch through DataParallel's four steps, as hooks observed it.

Every shape, device and byte was read off a tensor; nothing is computed
from the split rule.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from dpdemo.arithmetic.tolerance import EXACT, tolerance_of
from dpdemo.config.fields import Config
from dpdemo.results.batches import Shapes, bracketed, plain_shapes
from dpdemo.results.devices import Devices
from dpdemo.results.formats import in_json
from dpdemo.results.report import Report
from dpdemo.results.split import over
from dpdemo.results.table import Block, Canvas, Table, facts, styled
from dpdemo.sizes import size
from dpdemo.wording import counted

StepName = Literal["scatter", "replicate", "parallel_apply", "gather", "plain call"]


@dataclass(frozen=True, slots=True)
class Part:
    """Tensors that belong together at one point: the input, chunk 2, replica 2's parameters, the output.

    `shapes` is empty for a module, whose tensors are only counted.
    """

    label: str
    device: str
    shapes: Shapes = field(metadata=in_json(form=plain_shapes))
    num_tensors: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes copied from one device to another; a chunk that stays where it is moves none."""

    source: str
    target: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step: the call that was made, what went in, what came out, and what was copied for it.

    `lesson` says in a sentence or two what the step did, and why.
    """

    name: StepName
    call: str
    given: tuple[Part, ...]
    made: tuple[Part, ...]
    moved: tuple[Move, ...]
    lesson: str = ""
    DERIVED: ClassVar[tuple[str, ...]] = ("moved_bytes",)

    @property
    def moved_bytes(self) -> int:
        """All bytes that the step copied between devices."""
        return sum(move.num_bytes for move in self.moved)


@dataclass(frozen=True, slots=True)
class ModuleSize:
    """The parameters and buffers that replicate copies to each further device."""

    num_parameters: int
    parameter_bytes: int
    num_buffers: int
    buffer_bytes: int


def _if_finite(number: float | None) -> float | None:
    """Return a number that JSON can hold, or None."""
    return number if number is not None and math.isfinite(number) else None


@dataclass(frozen=True, slots=True)
class PlainCall:
    """The largest difference between DataParallel's result and that of a plain call of the module.

    Of several tensors it is the one that is furthest off for its type: `scale` is its largest number in the
    plain result. The difference is None where shapes differ, such as a vector of one loss per replica.
    """

    difference: float | None = field(metadata=in_json(form=_if_finite))
    scale: float = field(metadata=in_json(form=_if_finite))
    dtype: str
    device: str


@dataclass(frozen=True, slots=True)
class Explanation(Report):
    """One batch under DataParallel, a step at a time."""

    SCHEMA: ClassVar[str] = "dpdemo.explain/2"
    DERIVED: ClassVar[tuple[str, ...]] = ("model",)
    config: Config
    devices: Devices
    wrapped: str
    virtual: bool
    batch_size: int
    module: ModuleSize
    steps: tuple[Step, ...]
    idle: Devices
    plain: PlainCall

    @property
    def model(self) -> str:
        """The model's name, or the user's `pkg.mod:factory`."""
        return self.config.model

    def step(self, name: StepName) -> Step | None:
        """Return the step of this name, or None where it was not taken."""
        return next((step for step in self.steps if step.name == name), None)

    def blocks(self, _: Canvas) -> Iterator[Block]:
        """Yield a table for each step, its copies, a sentence to learn from, and the result."""
        yield styled(_title(self), "bold")
        yield styled(_setting(self), "dim")
        for number, step in enumerate(self.steps, 1):
            yield ()
            yield styled(f"{number} {step.call}", "bold")
            yield from _tensors(step)
            yield Table((0, "fold"), [((), styled(step.lesson))])
        yield ()
        yield facts([("Result", "", same_as_plain(self))])


FEW = 4
"""Up to this many parts each have a line; of more, equal neighbours share one."""


def _title(explanation: Explanation) -> str:
    """Head the report: `Explained: linear, one batch of 30 over 3 virtual GPUs`."""
    batch = f"{explanation.config.model}, one batch of {explanation.batch_size}"
    return f"Explained: {batch} {over(explanation.devices, virtual=explanation.virtual)}"


def _setting(explanation: Explanation) -> str:
    what = f"{explanation.wrapped} in DataParallel" if explanation.wrapped else "DataParallel"
    return what if explanation.devices.kind == "cpu" else f"{what} on {explanation.devices}"


def _tensors(step: Step) -> Iterator[Table]:
    """Yield the tensors that went in and came out, and then the copies."""
    label = len("  copied")
    tensors, copies = Table((label, "keep", "fold", "keep", "keep")), Table((label, "fold"))
    for view, parts in (("in", step.given), ("out", step.made)):
        for index, cells in enumerate(_lines(parts)):
            tensors.add(styled("" if index else f"  {view}", "dim"), *cells)
    yield tensors
    for index, (way, amount) in enumerate(_moves(step.moved)):
        copies.add(styled("" if index else "  copied", "dim"), f"{way}  {amount}")
    if copies.rows:
        yield copies


def _lines(parts: Sequence[Part]) -> Iterator[tuple[str, str, str, str]]:
    for run in _runs(parts):
        first, last = run[0], run[-1]
        label, each = first.label, ""
        if len(run) > 1:
            label, each = f"{label}–{last.label.rpartition(' ')[2]}", " each"
        device = str(Devices([part.device for part in run]))
        what = ", ".join(bracketed(first.shapes)) if first.shapes else counted(first.num_tensors, "tensor")
        yield label, what, device, size(first.num_bytes) + each


def _runs(parts: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    """Yield few parts one by one; of many, neighbours that differ only in their device together."""
    if len(parts) <= FEW:
        yield from ((part,) for part in parts)
        return
    for _, run in itertools.groupby(parts, key=lambda part: (part.shapes, part.num_tensors, part.num_bytes)):
        yield tuple(run)


def _moves(moves: Sequence[Move]) -> Iterator[tuple[str, str]]:
    """Write `cuda:0 → cuda:1–2` and `200 B each`: equal amounts out of, or into, one device are one line."""
    left = list(moves)
    while left:
        first = left[0]
        sent = [move for move in left if (move.source, move.num_bytes) == (first.source, first.num_bytes)]
        got = [move for move in left if (move.target, move.num_bytes) == (first.target, first.num_bytes)]
        run = sent if len(sent) >= len(got) else got
        sources = Devices(dict.fromkeys(move.source for move in run))
        targets = Devices(dict.fromkeys(move.target for move in run))
        yield f"{sources} → {targets}", size(first.num_bytes) + (" each" if len(run) > 1 else "")
        left = [move for move in left if move not in run]


def same_as_plain(explanation: Explanation) -> str:
    """Compare the result with a plain call of the module on one device."""
    plain = explanation.plain
    call = f"module(input) on {plain.device or 'one device'}"
    if plain.difference is None:
        return f"of other shapes than {call}: what has no batch dimension is gathered as a vector"
    tolerance = tolerance_of(plain.dtype)
    if plain.difference == 0 and (tolerance == EXACT or not _is_cut(explanation)):
        return f"equal to {call}, bit for bit"
    if plain.difference == 0 or plain.difference <= tolerance.allowed(plain.scale):
        return f"equal to {call} to round-off: {plain.difference:.3g} apart at most"
    return (
        f"up to {plain.difference:.3g} from {call} (largest number {plain.scale:.3g}): "
        "chunks are treated differently from the whole batch, as by BatchNorm in training"
    )


def _is_cut(explanation: Explanation) -> bool:
    """Return whether kernels saw other shapes than in a plain call: some processors take others for them."""
    scatter = explanation.step("scatter")
    return scatter is not None and len(scatter.made) > 1
