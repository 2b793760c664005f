"""The JSON form, `dpdemo.report/1`: what stands under each key, and the schema that is published of it."""

from typing import Literal

from typing_extensions import TypedDict  # pydantic brings it, and needs it before Python 3.12

from dpdemo.config import Config

SCHEMA: Literal["dpdemo.report/1"] = "dpdemo.report/1"

ShapesJson = list[int] | dict[str, list[int]] | None
"""A lone tensor's shape, the shapes of a structure by path, or null when unknown."""


class ReplicaJson(TypedDict):
    """What arrived in one replica, and what it returned."""

    replica: int
    device: str
    rows: int
    input: ShapesJson
    output: ShapesJson


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


class ReportJson(TypedDict):
    """How an epoch was split over devices, or would be.

    `wrapped` names the submodule inside DataParallel, "" for the whole model; `partial` says that the run
    was interrupted.
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
    totals: TotalsJson
