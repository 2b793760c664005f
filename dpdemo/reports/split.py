"""The one result type: what a prediction (`simulate`) and an observation (`run`) both return.

A report is frozen and torch-free; whatever computes makes one, whatever draws only reads it. Identical
batches are one `BatchGroup`, so that an epoch of any length is two or three of them.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import PlainSerializer, SerializationInfo, field_serializer

from dpdemo.config.fields import Config
from dpdemo.reports.base import IfThere, Ratio, Report, Row, computed
from dpdemo.reports.devices import Devices
from dpdemo.reports.distribution import Distribution

if TYPE_CHECKING:
    from dpdemo.results.tokens import Tokens
else:
    Tokens = Any  # loaded where lengths are given

Shape = tuple[int, ...]
_Plain = list[int] | dict[str, list[int]] | None


def _plain(shapes: tuple[tuple[str, Shape], ...]) -> _Plain:
    if is_lone(shapes):
        return list(shapes[0][1])
    return {path: list(shape) for path, shape in shapes} or None


Shapes = Annotated[tuple[tuple[str, Shape], ...], PlainSerializer(_plain, return_type=_Plain)]
"""The tensors of a structure by path: a lone tensor has the path "", `out["logits"]` has "logits".

In JSON a lone tensor's shape is a list, a structure's an object, and an unknown one null.
"""


def one(shape: Shape) -> Shapes:
    """Name the shapes of a structure that is just one tensor."""
    return (("", shape),)


def is_lone(shapes: Shapes) -> bool:
    """Return whether the structure is just one tensor."""
    return len(shapes) == 1 and not shapes[0][0]


def crossed(shapes: Shapes) -> str:
    """Write a lone tensor as `10x5`, a structure as `logits=10x5 state=2x10`, an unknown one as nothing."""
    texts = ((path, "x".join(map(str, shape)) or "scalar") for path, shape in shapes)
    return " ".join(f"{path}={text}" if path else text for path, text in texts)


def _plain_tokens(tokens: "Tokens", info: SerializationInfo) -> dict[str, Any]:
    return tokens.to_dict(verbose=bool((info.context or {}).get("verbose")))


@dataclass(frozen=True, slots=True)
class Replica:
    """What arrived in one replica, and what it returned; under DDP a replica is a rank, which has a place.

    `rows` counts the chunk's rows along the scattered dimension. An empty `output` is an unknown one:
    a prediction cannot know what a user's own model returns.
    """

    replica: int
    device: str
    rows: int
    input: Shapes
    output: Shapes
    rank: Annotated[int | None, IfThere] = None
    node: Annotated[int | None, IfThere] = None
    local_rank: Annotated[int | None, IfThere] = None


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

    @computed
    def utilization(self) -> Ratio:
        """Rows computed over what the devices could have computed while the largest chunk ran."""
        capacity = self.num_devices * self.largest
        return self.rows_computed / capacity if capacity else 1.0

    @computed
    def sample_weight(self) -> Ratio:
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
    """Sums over the epoch; `utilization` is 1.0 when no device ever waits.

    `sample_weight` is the largest of all batches (see `BatchGroup.sample_weight`), None without a batch.
    """

    batches: int
    samples: int
    utilization: Ratio
    sample_weight: Ratio | None


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


@dataclass(frozen=True, slots=True)
class SplitReport(Report):
    """How an epoch was split over devices, or would be.

    `wrapped` names the submodule inside DataParallel ("" when it is the whole model); `partial` says that
    the run was interrupted and only the batches done are here. `distribution` is DDP's alone: there a batch
    is what all ranks take in one step, a replica is a rank, and `outside` is what the loop on rank 0 sees.
    `trace` is there when the config asks for one sample's way.
    """

    SCHEMA: ClassVar[str] = "dpdemo.report/1"
    command: str
    config: Config
    devices: Devices
    batches: tuple[BatchGroup, ...]
    strategy: str = "dp"
    wrapped: str = ""
    virtual: bool = False
    partial: bool = False
    distribution: Annotated[Distribution | None, IfThere] = None
    trace: Annotated[Trace | None, IfThere] = None
    tokens: Annotated[Tokens | None, PlainSerializer(_plain_tokens), IfThere] = None

    @computed
    def model(self) -> str:
        """The model's name, or the user's target, such as `model.py:Net`."""
        return self.config.model

    @computed
    def totals(self) -> Totals:
        """Add up the epoch."""
        rows = sum(group.count * group.rows_computed for group in self.batches)
        capacity = sum(group.count * group.num_devices * group.largest for group in self.batches)
        return Totals(
            batches=sum(group.count for group in self.batches),
            samples=sum(group.count * group.batch_size for group in self.batches),
            utilization=rows / capacity if capacity else 1.0,
            sample_weight=max((group.sample_weight for group in self.batches), default=None),
        )

    @property
    def sample_weight(self) -> float:
        """The largest weight of a sample over all batches, NaN without one (see `BatchGroup`)."""
        weight = self.totals.sample_weight
        return math.nan if weight is None else weight

    def listed(self, *, verbose: bool) -> Iterator[BatchGroup]:
        """Yield the groups of batches, or with `verbose` every batch."""
        return self.each_batch() if verbose else iter(self.batches)

    @field_serializer("batches")
    def _listed(self, _: object, info: SerializationInfo) -> Iterable[BatchGroup]:
        return self.listed(verbose=bool((info.context or {}).get("verbose")))

    def _context(self, *, verbose: bool) -> dict[str, object]:
        return {"verbose": verbose}

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]  # DDP has two more
        """What stands in each row: `view` is in_model, idle or outside.

        `device` holds the output, `input_device` the input; under DDP a replica is a rank.
        """
        place = () if self.distribution is None else ("node", "local_rank")
        return _COLUMNS + place + (() if self.tokens is None else ("tokens", "padded_tokens", "share"))

    def each_row(self, *, verbose: bool = False) -> Iterator[Row]:
        """Yield the row of each replica and idle device of each group of batches, and that of Outside.

        With tokens every batch is listed by itself, since no two are alike.
        """
        if self.tokens is None:
            for group in self.listed(verbose=verbose):
                yield from self._rows_of(group)
            return
        for group, batch in zip(self.each_batch(), self.tokens.each_batch(), strict=True):
            cells = self.tokens.cells(batch, len(group.idle))
            yield from (row + cell for row, cell in zip(self._rows_of(group), cells, strict=True))

    def _rows_of(self, group: BatchGroup) -> Iterator[Row]:
        no_place = () if self.distribution is None else (None, None)
        batch = (group.first, group.count, group.batch_size)
        for one in group.in_model:
            place = () if self.distribution is None else (one.node, one.local_rank)
            shapes = (crossed(one.input), crossed(one.output))
            yield (*batch, "in_model", one.replica, one.device, one.rows, one.device, *shapes, *place)
        for device in group.idle:
            yield (*batch, "idle", None, device, 0, None, None, None, *no_place)
        out = group.outside
        shapes = (crossed(out.input), crossed(out.output))
        yield (
            *(*batch, "outside", None, out.device, group.batch_size, out.input_device, *shapes),
            *no_place,
        )

    def each_batch(self) -> Iterator[BatchGroup]:
        """Yield every batch as a group of its own."""
        for group in self.batches:
            for number in range(group.first, group.first + group.count):
                yield BatchGroup(number, 1, group.batch_size, group.in_model, group.idle, group.outside)


_COLUMNS = (
    "first", "count", "batch_size", "view", "replica", "device", "rows", "input_device", "input", "output",
)  # fmt: skip
