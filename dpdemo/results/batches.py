"""The batches of an epoch: what reached each replica, what the training loop saw, and their sums."""

from dataclasses import dataclass, field
from typing import Any

from dpdemo.results.devices import Devices
from dpdemo.results.formats import in_json, plain_fields
from dpdemo.results.report import rounded

Shape = tuple[int, ...]
Shapes = tuple[tuple[str, Shape], ...]
"""The tensors of a structure by path: a lone tensor has the path "", `out["logits"]` has "logits"."""
UNKNOWN = "?"
"""Stands for the result of a user's own model, which only running it can tell."""


def lone(shape: Shape) -> Shapes:
    """Name the shapes of a structure that is just one tensor."""
    return (("", shape),)


def is_lone(shapes: Shapes) -> bool:
    """Return whether the structure is just one tensor."""
    return len(shapes) == 1 and not shapes[0][0]


def plain_shapes(shapes: Shapes) -> list[int] | dict[str, list[int]] | None:
    """Return the JSON form: a list for a lone tensor, an object for a structure, null for an unknown one."""
    if is_lone(shapes):
        return list(shapes[0][1])
    return {path: list(shape) for path, shape in shapes} or None


def bracketed(shapes: Shapes) -> tuple[str, ...]:
    """Write each tensor as `[10, 5]`, or `logits [10, 5]` inside a structure."""
    if not shapes:
        return (UNKNOWN,)
    return tuple(f"{path} {list(shape)}".lstrip() for path, shape in shapes)


def crossed(shapes: Shapes) -> str:
    """Write a lone tensor as `10x5`, a structure as `logits=10x5 state=2x10`, an unknown one as nothing."""
    texts = ((path, "x".join(map(str, shape)) or "scalar") for path, shape in shapes)
    return " ".join(f"{path}={text}" if path else text for path, text in texts)


@dataclass(frozen=True, slots=True)
class Replica:
    """The input and output of one replica; under DDP a replica is a rank, which has a place.

    `rows` counts the chunk's rows along the scattered dimension. An empty `output` is an unknown one:
    a prediction cannot know what a user's own model returns.
    """

    replica: int
    device: str
    rows: int
    input: Shapes = field(metadata=in_json(form=plain_shapes))
    output: Shapes = field(metadata=in_json(form=plain_shapes))
    rank: int | None = field(default=None, metadata=in_json(null=False))
    node: int | None = field(default=None, metadata=in_json(null=False))
    local_rank: int | None = field(default=None, metadata=in_json(null=False))


@dataclass(frozen=True, slots=True)
class Outside:
    """The view of the training loop: the whole batch before and after the model, and its devices."""

    input_device: str
    device: str
    input: Shapes = field(metadata=in_json(form=plain_shapes))
    output: Shapes = field(metadata=in_json(form=plain_shapes))


@dataclass(frozen=True, slots=True)
class BatchGroup:
    """`count` consecutive batches, from number `first` (1-based) on, that were split alike.

    `batch_size` is in rows. `calls/trace.py` fills it in from a run, `splitting/predict.py` by arithmetic.
    """

    first: int
    count: int
    batch_size: int
    in_model: tuple[Replica, ...]
    idle: Devices
    outside: Outside

    @property
    def num_devices(self) -> int:
        """All devices asked for, idle ones included."""
        return self.num_replicas + len(self.idle)

    @property
    def num_replicas(self) -> int:
        """The devices that received a chunk."""
        return len(self.in_model)

    @property
    def largest(self) -> int:
        """Rows of the largest chunk: every other device waits for it."""
        return max((replica.rows for replica in self.in_model), default=0)

    @property
    def smallest(self) -> int:
        """Rows of the shortest chunk."""
        return min((replica.rows for replica in self.in_model), default=0)

    @property
    def rows_computed(self) -> int:
        """Rows that went through the model, over all devices."""
        return sum(replica.rows for replica in self.in_model)

    @property
    def utilization(self) -> float:
        """Rows computed over what the devices could have computed while the largest chunk ran."""
        capacity = self.num_devices * self.largest
        return self.rows_computed / capacity if capacity else 1.0

    @property
    def sample_weight(self) -> float:
        """The weight of a sample of the shortest chunk if each replica averages its own loss.

        The mean of the replicas' means gives such a sample 1 / (replicas · shortest chunk), and a mean over
        the batch would give it 1 / batch. 1.0 when all chunks are equal.
        """
        even_share = self.num_replicas * self.smallest
        return self.rows_computed / even_share if even_share else 1.0

    def last(self) -> int:
        """Return the number of the group's last batch."""
        return self.first + self.count - 1

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        ratios = {"utilization": rounded(self.utilization), "sample_weight": rounded(self.sample_weight)}
        return {**plain_fields(self), **ratios}


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the epoch; `utilization` is 1.0 when no device ever waits.

    `sample_weight` is the largest of all batches (see `BatchGroup.sample_weight`), None without a batch.
    """

    batches: int
    samples: int
    utilization: float = field(metadata=in_json(form=rounded))
    sample_weight: float | None = field(metadata=in_json(form=lambda weight: weight and rounded(weight)))


@dataclass(frozen=True, slots=True)
class Stop:
    """One time that a sample goes through the model: `row` is its row on the device, in a batch (1-based)."""

    batch: int
    replica: int
    device: str
    row: int
    output_row: int
    output_device: str


@dataclass(frozen=True, slots=True)
class Trace:
    """All that happens to one sample in an epoch; no stops if it is left out."""

    sample: int
    stops: tuple[Stop, ...]
