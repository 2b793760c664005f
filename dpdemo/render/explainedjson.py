"""The JSON form of an explanation, `dpdemo.explain/1`: what stands under each key."""

import json
from typing import Literal

from typing_extensions import TypedDict  # pydantic brings it, and needs it before Python 3.12

from dpdemo.config import Config
from dpdemo.explanation import Explanation, ModuleSize, Move, Part, Proof, Step, StepName
from dpdemo.render.jsonform import finite, shapes_json
from dpdemo.render.lessons import lesson
from dpdemo.render.wire import ShapesJson

SCHEMA: Literal["dpdemo.explain/1"] = "dpdemo.explain/1"


class PartJson(TypedDict):
    """Tensors that belong together; a module's are only counted, so its `shapes` is null."""

    label: str
    device: str
    shapes: ShapesJson
    num_tensors: int
    num_bytes: int


class MoveJson(TypedDict):
    """Bytes copied from one device to another."""

    source: str
    target: str
    num_bytes: int


class StepJson(TypedDict):
    """One step: its call, the lesson in it, what went in and came out, and what it copied."""

    name: StepName
    call: str
    lesson: str
    given: list[PartJson]
    made: list[PartJson]
    moved: list[MoveJson]
    moved_bytes: int


class ModuleJson(TypedDict):
    """What replicate copies to each further device."""

    num_parameters: int
    parameter_bytes: int
    num_buffers: int
    buffer_bytes: int


class ProofJson(TypedDict):
    """How the result compares with DataParallel's and a plain call's.

    A difference is null where shapes differ, or where one side alone is infinite or not a number.
    """

    equals_data_parallel: bool
    data_parallel_difference: float | None
    plain_difference: float | None
    plain_scale: float | None
    plain_dtype: str
    plain_device: str


class ExplanationJson(TypedDict):
    """One batch under DataParallel, a step at a time.

    `bytes_from` says where the moved bytes come from: the `ledger` of virtual GPUs, or the `tensors` before
    and after a step.
    """

    schema: Literal["dpdemo.explain/1"]
    model: str
    wrapped: str
    virtual: bool
    devices: list[str]
    config: Config
    batch_size: int
    module: ModuleJson
    bytes_from: Literal["ledger", "tensors"]
    steps: list[StepJson]
    idle: list[str]
    proof: ProofJson


def explanation_json(explanation: Explanation) -> str:
    """Write an explanation as JSON text."""
    found = ExplanationJson(
        schema=SCHEMA,
        model=explanation.config.model,
        wrapped=explanation.wrapped,
        virtual=explanation.virtual,
        devices=list(explanation.devices),
        config=explanation.config,
        batch_size=explanation.batch_size,
        module=_module(explanation.module),
        bytes_from=explanation.bytes_from,
        steps=[_step(explanation, step) for step in explanation.steps],
        idle=list(explanation.idle),
        proof=_proof(explanation.proof),
    )
    return json.dumps(found, indent=1, default=_config) + "\n"


def _config(config: Config) -> object:
    return config.model_dump(mode="json")


def _module(module: ModuleSize) -> ModuleJson:
    return ModuleJson(
        num_parameters=module.num_parameters,
        parameter_bytes=module.parameter_bytes,
        num_buffers=module.num_buffers,
        buffer_bytes=module.buffer_bytes,
    )


def _step(explanation: Explanation, step: Step) -> StepJson:
    return StepJson(
        name=step.name,
        call=step.call,
        lesson=lesson(explanation, step),
        given=[_part(part) for part in step.given],
        made=[_part(part) for part in step.made],
        moved=[_move(move) for move in step.moved],
        moved_bytes=step.moved_bytes,
    )


def _part(part: Part) -> PartJson:
    return PartJson(
        label=part.label,
        device=part.device,
        shapes=shapes_json(part.shapes),
        num_tensors=part.num_tensors,
        num_bytes=part.num_bytes,
    )


def _move(move: Move) -> MoveJson:
    return MoveJson(source=move.source, target=move.target, num_bytes=move.num_bytes)


def _proof(proof: Proof) -> ProofJson:
    return ProofJson(
        equals_data_parallel=proof.equals_data_parallel,
        data_parallel_difference=finite(proof.data_parallel_difference),
        plain_difference=finite(proof.plain_difference),
        plain_scale=finite(proof.plain_scale),
        plain_dtype=proof.plain_dtype,
        plain_device=proof.plain_device,
    )
