"""The JSON form, `dpdemo.memory/1`: what stands under each key, and writing it. All sizes are in bytes."""

import json
from typing import Any, Literal, cast

from typing_extensions import TypedDict  # pydantic brings it, and needs it before Python 3.12

from dpdemo.config import Config
from dpdemo.memoryreport import PARTS, Fit, GpuMemory, MemoryReport

SCHEMA: Literal["dpdemo.memory/1"] = "dpdemo.memory/1"
KEYS = tuple(part.replace(" ", "_") for part in PARTS)
"""The key of each of PARTS."""


class PartsJson(TypedDict):
    """What a GPU holds at its fullest moment, by what it is for; the sum of all is its peak."""

    parameters: int
    gradients: int
    optimizer_state: int
    buffers: int
    inputs: int
    activations: int
    replica_copies: int
    gathered_outputs: int
    temporaries: int
    library_workspaces: int


class GpuMemoryJson(TypedDict):
    """A GPU at its fullest moment, and its rows of the batch.

    `spare_bytes` is what is left of its capacity, negative where it does not fit; both are null where no
    capacity was given.
    """

    device: str
    rows: int
    parts_bytes: PartsJson
    peak_bytes: int
    phase: str
    capacity_bytes: int | None
    spare_bytes: int | None
    fits: bool


class TrainingJson(TypedDict):
    """What was assumed beside the config; the optimizer and the loss have no part in inference."""

    optimizer: str
    loss: str
    amp: bool
    inference: bool


class RemedyJson(TypedDict):
    """A change, what the GPU that binds loses by it (negative: gets), and which GPU is the fullest then."""

    name: str
    how: str
    gain_bytes: int
    fullest: str
    peak_bytes: int


class FitJson(TypedDict):
    """The largest batch that fits, 0 for none, and what GPU `binding` lacks, and when, at one sample more."""

    largest: int
    binding: str
    phase: str
    missing_bytes: int
    num_predictions: int
    remedies: list[RemedyJson]


class MemoryReportJson(TypedDict):
    """What each GPU must hold for one step; under `--fit` that of the largest batch, or of one sample.

    `inputs` has the shapes of the batch by argument: positional ones by their number.
    """

    schema: Literal["dpdemo.memory/1"]
    model: str
    config: Config
    training: TrainingJson
    batch_size: int
    num_parameters: int
    inputs: dict[str, list[int]]
    gpus: list[GpuMemoryJson]
    fullest: str
    fits: bool
    fit: FitJson | None


def as_json(report: MemoryReport) -> str:
    """Write a report as JSON."""
    training = report.training
    # the config as plain data: the type is that of the schema
    config: Any = report.config.model_dump(mode="json")
    found = MemoryReportJson(
        schema=SCHEMA,
        model=report.config.model,
        config=config,
        training=TrainingJson(
            optimizer=training.optimizer, loss=training.loss, amp=training.amp, inference=training.inference
        ),
        batch_size=report.batch_size,
        num_parameters=report.num_parameters,
        inputs={name: list(shape) for name, shape in report.inputs},
        gpus=[_gpu(gpu, rows) for gpu, rows in zip(report.gpus, report.chunks, strict=True)],
        fullest=report.fullest.device,
        fits=report.fits,
        fit=None if report.fit is None else _fit(report.fit),
    )
    return json.dumps(found, indent=1) + "\n"


def _gpu(gpu: GpuMemory, rows: int) -> GpuMemoryJson:
    return GpuMemoryJson(
        device=gpu.device,
        rows=rows,
        parts_bytes=cast("PartsJson", dict(zip(KEYS, gpu.parts, strict=True))),
        peak_bytes=gpu.peak_bytes,
        phase=gpu.phase,
        capacity_bytes=gpu.capacity_bytes,
        spare_bytes=gpu.spare_bytes,
        fits=gpu.fits,
    )


def _fit(fit: Fit) -> FitJson:
    return FitJson(
        largest=fit.largest,
        binding=fit.binding,
        phase=fit.phase,
        missing_bytes=fit.missing_bytes,
        num_predictions=fit.num_predictions,
        remedies=[
            RemedyJson(
                name=remedy.name,
                how=remedy.how,
                gain_bytes=remedy.gain_bytes,
                fullest=remedy.fullest,
                peak_bytes=remedy.peak_bytes,
            )
            for remedy in fit.remedies
        ],
    )
