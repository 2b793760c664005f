"""The result of `explain`: one batch through DataParallel's four steps, as hooks observed it.

Every shape, device and byte was read off a tensor, or off the ledger of virtual GPUs; nothing is computed
from the split rule.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dpdemo.config.fields import Config
from dpdemo.results.batches import Shapes, crossed, plain_shapes
from dpdemo.results.devices import Devices
from dpdemo.results.formats import Row, plain_fields
from dpdemo.results.report import Report

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

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**plain_fields(self), "shapes": plain_shapes(self.shapes)}


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

    @property
    def moved_bytes(self) -> int:
        """All bytes that the step copied between devices."""
        return sum(move.num_bytes for move in self.moved)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return plain_fields(self, "moved_bytes")


@dataclass(frozen=True, slots=True)
class ModuleSize:
    """The parameters and buffers that replicate copies to each further device."""

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

    difference: float | None
    scale: float
    dtype: str
    device: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: a number that is not finite is null."""
        numbers = {"difference": self.difference, "scale": self.scale}
        found: dict[str, Any] = {
            name: number if number is not None and math.isfinite(number) else None
            for name, number in numbers.items()
        }
        return {**found, "dtype": self.dtype, "device": self.device}


_COLUMNS = ("step", "name", "view", "label", "device", "target", "shapes", "num_tensors", "num_bytes")


@dataclass(frozen=True, slots=True)
class ExplanationData(Report):
    """One batch under DataParallel, a step at a time.

    `bytes_from` says where the moved bytes come from: the `ledger` of virtual GPUs, which counts each copy,
    or the `tensors` before and after a step, on real GPUs, where copies inside a forward stay unseen.
    """

    SCHEMA: ClassVar[str] = "dpdemo.explain/2"
    DERIVED: ClassVar[tuple[str, ...]] = ("model",)
    TITLE: ClassVar[str] = "dpdemo explain"
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

    @property
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
        """Return the step of this name, or None where it was not taken."""
        return next((step for step in self.steps if step.name == name), None)
