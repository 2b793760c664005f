"""One batch through DataParallel's four steps, as it was seen: what `walkthrough` returns and `render` draws.

Frozen and torch-free. Every shape, device and byte in it was read off a tensor, or off the ledger of virtual
GPUs; nothing is computed from the split rule.
"""

from dataclasses import dataclass
from typing import Literal

from dpdemo.config import Config
from dpdemo.devices import Devices
from dpdemo.report import Shapes

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
    """One step: the call that was made, what went in, what came out, and what was copied for it."""

    name: StepName
    call: str
    given: tuple[Part, ...]
    made: tuple[Part, ...]
    moved: tuple[Move, ...]

    @property
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
class Proof:
    """How the result of the steps compares with two other ways to get it.

    A difference is None where the results cannot be compared: other shapes, such as a vector of one loss a
    replica against the one loss of a plain call. `plain_scale` is the plain result's largest number.
    """

    equals_data_parallel: bool
    data_parallel_difference: float | None
    plain_difference: float | None
    plain_scale: float
    plain_dtype: str
    plain_device: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """One batch under DataParallel, a step at a time.

    `bytes_from` says where the moved bytes come from: the `ledger` of virtual GPUs, which counts each copy,
    or the `tensors` before and after a step, on real GPUs, where copies inside a forward stay unseen.
    """

    config: Config
    devices: Devices
    wrapped: str
    virtual: bool
    batch_size: int
    module: ModuleSize
    steps: tuple[Step, ...]
    idle: Devices
    bytes_from: Literal["ledger", "tensors"]
    proof: Proof

    def step(self, name: StepName) -> Step | None:
        """Give the step of this name, or None where it was not taken."""
        return next((step for step in self.steps if step.name == name), None)
