"""The keys of a config, each with its type, its bounds and its default."""

from typing import Annotated, Literal

import pydantic
from pydantic import Field

from dpdemo.arithmetic.limits import MAX_GPUS, MAX_NODES
from dpdemo.config.catalogue import MODELS

INT64_MAX = 2**63 - 1

PositiveInt = Annotated[int, Field(ge=1, le=INT64_MAX)]
Ordinal = Annotated[int, Field(ge=0, le=MAX_GPUS - 1)]
Count = Annotated[int, Field(ge=1, le=MAX_GPUS)]
Nodes = Annotated[int, Field(ge=1, le=MAX_NODES)]
Rows = Annotated[int, Field(ge=0, le=INT64_MAX)]
Weight = Rows | Annotated[float, Field(ge=0, le=INT64_MAX, allow_inf_nan=False)]
DType = Literal["float32", "float64", "bfloat16", "float16"]


class Config(pydantic.BaseModel):
    """What is split and over what; the defaults are those of PyTorch's DataParallel tutorial.

    Raises:
        UsageError: from `make_config` and `load_config` (`config/load.py`), for any value that cannot be.

    """

    model_config = pydantic.ConfigDict(frozen=True, strict=True, extra="forbid")

    input_size: PositiveInt = Field(default=5, description="Features of one sample.")
    output_size: PositiveInt = Field(default=2, description="Features of one output.")
    batch_size: PositiveInt = Field(
        default=30, description="Samples in one batch: over all GPUs together, but of each rank under `ddp`."
    )
    data_size: PositiveInt = Field(default=100, description="Samples in one epoch.")
    gpus: Count | tuple[Ordinal, ...] | Literal["all"] | None = Field(
        default=None,
        description="DataParallel's device_ids: a list of ordinals in replica order, a count, or `all`; "
        "under `ddp` those of each node, a rank for each.",
    )
    model: str = Field(
        default="linear",
        description=f"One of {', '.join(MODELS)}, or your own: `model.py:Net`, `pkg.mod:Net`.",
    )
    output_device: Ordinal | None = Field(
        default=None,
        description="Ordinal of the GPU that gathers the outputs; the first of `gpus` if left out.",
    )
    dim: Annotated[int, Field(ge=0, le=63)] = Field(default=0, description="Dimension that holds the batch.")
    shuffle: bool = Field(default=False, description="Visit the samples in a random order.")
    drop_last: bool = Field(default=False, description="Leave out a last batch that is not full.")
    seed: Annotated[int, Field(ge=0, le=INT64_MAX)] = Field(
        default=0, description="Seed of data and weights."
    )
    dtype: DType = Field(default="float32", description="Type of the model's numbers.")
    strategy: Literal["dp", "ddp"] = Field(
        default="dp", description="DataParallel, or DistributedDataParallel with a process for each rank."
    )
    nodes: Nodes = Field(default=1, description="Machines that the ranks of `ddp` run on.")
    processes: Count | None = Field(
        default=None,
        description="Ranks of `ddp` on each node, on the CPU; with `gpus` there is one for each GPU.",
    )
    batch_size_is: Literal["per-rank", "global"] | None = Field(
        default=None,
        description="Whether the batch_size of `ddp` is each rank's, as a DataLoader's is, or all ranks'.",
    )
    sampler_drop_last: bool = Field(
        default=False,
        description="DistributedSampler's drop_last: leave out the samples that the ranks do not divide, "
        "instead of repeating some.",
    )
    weights: tuple[Weight, ...] | None = Field(
        default=None,
        description="Unequal chunks: a number for each GPU, in whose proportions every batch is cut, such as "
        "1,2,2.",
    )
    chunks: tuple[Rows, ...] | None = Field(
        default=None,
        description="Unequal chunks: the exact rows of each GPU in a full batch, such as 4,13,13.",
    )
    trace_sample: Annotated[int, Field(ge=0, le=INT64_MAX)] | None = Field(
        default=None, description="Number of a sample whose way is shown: batch, device, row, output row."
    )

    @pydantic.field_validator("gpus", "weights", "chunks", mode="before")
    @classmethod
    def _freeze_list(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @property
    def is_builtin(self) -> bool:
        """Whether the model is one of dpdemo's own."""
        return self.model in MODELS

    @property
    def wrapped(self) -> str:
        """The path of the submodule that is split, "" for the whole model."""
        return MODELS[self.model].wrapped if self.is_builtin else ""
