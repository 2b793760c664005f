"""The one result type: what a prediction (`simulate`) and an observation (`run`) both return.

A report is frozen and torch-free; whatever computes makes one, whatever draws only reads it. Neighbouring
replicas with equal shapes are one `ReplicaRun`, identical batches one `BatchGroup`, so an epoch of 10^12
samples over 10^5 devices is a handful of objects.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dpdemo.config import Config
from dpdemo.devices import Devices
from dpdemo.distribution import Distribution
from dpdemo.trace import Trace

Shape = tuple[int, ...]
Shapes = tuple[tuple[str, Shape], ...]
"""The tensors of a structure by path: a lone tensor has the path "", `out["logits"]` has "logits"."""


def one(shape: Shape) -> Shapes:
    """Name the shapes of a structure that is just one tensor."""
    return (("", shape),)


@dataclass(frozen=True, slots=True)
class ReplicaRun:
    """Neighbouring replicas, from number `first` on, that received chunks of equal shape.

    `rows` counts the chunk's rows along the scattered dimension. An empty `output` is an unknown one:
    a prediction cannot know what a user's own model returns.
    """

    first: int
    devices: Devices
    rows: int
    input: Shapes
    output: Shapes

    def __len__(self) -> int:
        return len(self.devices)


@dataclass(frozen=True, slots=True)
class Outside:
    """What the training loop sees: the whole batch before the model and after it, and where each lies."""

    input_device: str
    device: str
    input: Shapes
    output: Shapes


@dataclass(frozen=True, slots=True)
class BatchGroup:
    """`count` consecutive batches, from number `first` (1-based) on, that were split alike."""

    first: int
    count: int
    batch_size: int
    in_model: tuple[ReplicaRun, ...]
    idle: Devices
    outside: Outside

    @property
    def num_devices(self) -> int:
        """All devices asked for, idle ones included."""
        return self.num_replicas + len(self.idle)

    @property
    def num_replicas(self) -> int:
        """The devices that received a chunk."""
        return sum(len(run) for run in self.in_model)

    @property
    def largest(self) -> int:
        """Rows of the largest chunk: every other device waits for it."""
        return max((run.rows for run in self.in_model), default=0)

    @property
    def smallest(self) -> int:
        """Rows of the shortest chunk."""
        return min((run.rows for run in self.in_model), default=0)

    @property
    def rows_computed(self) -> int:
        """Rows that went through the model, over all devices."""
        return sum(run.rows * len(run) for run in self.in_model)

    @property
    def utilization(self) -> float:
        """Rows computed over what the devices could have computed while the largest chunk ran."""
        capacity = self.num_devices * self.largest
        return self.rows_computed / capacity if capacity else 1.0

    @property
    def sample_weight(self) -> float:
        """How much more a sample of the shortest chunk counts when each replica averages its loss.

        The mean of the replicas' means gives such a sample 1 / (replicas · shortest chunk), and a mean over
        the batch would give it 1 / batch. 1.0 when all chunks are equal.
        """
        even_share = self.num_replicas * self.smallest
        return self.rows_computed / even_share if even_share else 1.0

    def last(self) -> int:
        """Give the number of the group's last batch."""
        return self.first + self.count - 1


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the epoch; `utilization` is 1.0 when no device ever waits."""

    batches: int
    samples: int
    utilization: float


@dataclass(frozen=True, slots=True)
class SplitReport:
    """How an epoch was split over devices, or would be.

    `wrapped` names the submodule inside DataParallel ("" when it is the whole model); `partial` says that
    the run was interrupted and only the batches done are here. `distribution` is DDP's alone: there a batch
    is what all ranks take in one step, a replica is a rank, and `outside` is what the loop on rank 0 sees.
    `trace` is there when the config asks for one sample's way.
    """

    command: str
    config: Config
    devices: Devices
    batches: tuple[BatchGroup, ...]
    strategy: str = "dp"
    wrapped: str = ""
    virtual: bool = False
    partial: bool = False
    distribution: Distribution | None = None
    trace: Trace | None = None

    @property
    def model(self) -> str:
        """The model's name, or the user's `pkg.mod:factory`."""
        return self.config.model

    @property
    def totals(self) -> Totals:
        """Add up the epoch."""
        rows = sum(group.count * group.rows_computed for group in self.batches)
        capacity = sum(group.count * group.num_devices * group.largest for group in self.batches)
        return Totals(
            batches=sum(group.count for group in self.batches),
            samples=sum(group.count * group.batch_size for group in self.batches),
            utilization=rows / capacity if capacity else 1.0,
        )

    @property
    def sample_weight(self) -> float:
        """The largest weight of a sample over all batches (see `BatchGroup.sample_weight`)."""
        return max((group.sample_weight for group in self.batches), default=math.nan)

    def each_batch(self) -> Iterator[BatchGroup]:
        """Yield every batch as a group of its own."""
        for group in self.batches:
            for number in range(group.first, group.first + group.count):
                yield BatchGroup(number, 1, group.batch_size, group.in_model, group.idle, group.outside)
