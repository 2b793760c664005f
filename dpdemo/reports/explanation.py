"""One batch through DataParallel's four steps, as it was seen: what `walkthrough` returns and `render` draws.

Frozen and torch-free. Every shape, device and byte in it was read off a tensor, or off the ledger of virtual
GPUs; nothing is computed from the split rule.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from dpdemo.config.fields import Config
from dpdemo.reports.base import Finite, Report, Row, computed
from dpdemo.reports.devices import Devices
from dpdemo.reports.split import Shapes, crossed

StepName = Literal["scatter", "replicate", "parallel_apply", "gather", "plain call"]


@dataclass(frozen=True, slots=True)
class Part:
    """Tensors that belong together at one point: the input, chunk 2, replica 2's parameters, the output.

    `shapes` is empty for a module, whose tensors are only counted.
    """

    label: str
    device: str
    shapes: Shapes
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

    @computed
    def moved_bytes(self) -> int:
        """All bytes that the step copied between devices."""
        return sum(move.num_bytes for move in self.moved)


@dataclass(frozen=True, slots=True)
class ModuleSize:
    """What replicate copies to each further device."""

    num_parameters: int
    parameter_bytes: int
    num_buffers: int
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class PlainCall:
    """The largest difference between DataParallel's result and that of a plain call of the module.

    Of several tensors it is the one that is furthest off for its type: `scale` is its largest number in the
    plain result. The difference is None where shapes differ, such as a vector of one loss per replica.
    """

    difference: Finite | None
    scale: Finite
    dtype: str
    device: str


_COLUMNS = ("step", "name", "view", "label", "device", "target", "shapes", "num_tensors", "num_bytes")


@dataclass(frozen=True, slots=True)
class Explanation(Report):
    """One batch under DataParallel, a step at a time.

    `bytes_from` says where the moved bytes come from: the `ledger` of virtual GPUs, which counts each copy,
    or the `tensors` before and after a step, on real GPUs, where copies inside a forward stay unseen.
    """

    SCHEMA: ClassVar[str] = "dpdemo.explain/2"
    columns: ClassVar[tuple[str, ...]] = _COLUMNS
    config: Config
    devices: Devices
    wrapped: str
    virtual: bool
    batch_size: int
    module: ModuleSize
    steps: tuple[Step, ...]
    idle: Devices
    bytes_from: Literal["ledger", "tensors"]
    plain: PlainCall

    @computed
    def model(self) -> str:
        """The model's name, or the user's `pkg.mod:factory`."""
        return self.config.model

    def each_row(self) -> Iterator[Row]:
        """Yield a row for all that went into a step and came out of it, and for each copy."""
        for number, step in enumerate(self.steps, 1):
            for view, parts in (("in", step.given), ("out", step.made)):
                for part in parts:
                    held = (crossed(part.shapes), part.num_tensors, part.num_bytes)
                    yield number, step.name, view, part.label, part.device, None, *held
            for move in step.moved:
                yield number, step.name, "copied", None, move.source, move.target, None, None, move.num_bytes

    def step(self, name: StepName) -> Step | None:
        """Give the step of this name, or None where it was not taken."""
        return next((step for step in self.steps if step.name == name), None)
