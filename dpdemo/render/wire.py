"""The JSON form, `dpdemo.report/1`: what stands under each key, and the schema that is published of it."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict  # pydantic brings it, and needs it before Python 3.12

from dpdemo.config import Config

SCHEMA: Literal["dpdemo.report/1"] = "dpdemo.report/1"

ShapesJson = list[int] | dict[str, list[int]] | None
"""A lone tensor's shape, the shapes of a structure by path, or null when unknown."""


class ReplicaJson(TypedDict):
    """What arrived in one replica, and what it returned; under DDP a replica is a rank, which has a place."""

    replica: int
    device: str
    rows: int
    input: ShapesJson
    output: ShapesJson
    rank: NotRequired[int]
    node: NotRequired[int]
    local_rank: NotRequired[int]


class OutsideJson(TypedDict):
    """What the training loop sees: `device` holds the output, `input_device` the input."""

    input_device: str
    device: str
    input: ShapesJson
    output: ShapesJson


class BatchJson(TypedDict):
    """`count` equal batches, from number `first` (1-based) on."""

    first: int
    count: int
    batch_size: int
    in_model: list[ReplicaJson]
    idle: list[str]
    outside: OutsideJson
    utilization: float
    sample_weight: float


class TotalsJson(TypedDict):
    """Sums over the epoch; there is no sample weight without a batch."""

    batches: int
    samples: int
    utilization: float
    sample_weight: float | None


class DistributionJson(TypedDict):
    """How DistributedSampler dealt the samples out.

    `drawn` counts repeats; `repeated` and `dropped` are spans of sample numbers, first and last, and null
    where a shuffle decides.
    """

    world_size: int
    nodes: int
    batch_size_per_rank: int
    global_batch_size: int
    drawn: int
    num_repeated: int
    num_dropped: int
    repeated: list[tuple[int, int]] | None
    dropped: list[tuple[int, int]] | None


class StopJson(TypedDict):
    """One time that the traced sample goes through the model; under DDP the replica is a rank."""

    batch: int
    replica: int
    device: str
    row: int
    output_row: int
    output_device: str


class TraceJson(TypedDict):
    """Where one sample goes; no stops if it is left out."""

    sample: int
    stops: list[StopJson]


class ReportJson(TypedDict):
    """How an epoch was split over devices, or would be.

    `wrapped` names the submodule inside DataParallel, "" for the whole model; `partial` says that the run
    was interrupted. `distribution` is there under DDP alone, `trace` when asked for.
    """

    schema: Literal["dpdemo.report/1"]
    command: str
    strategy: str
    model: str
    wrapped: str
    virtual: bool
    partial: bool
    devices: list[str]
    config: Config
    batches: list[BatchJson]
    distribution: NotRequired[DistributionJson]
    trace: NotRequired[TraceJson]
    totals: TotalsJson
