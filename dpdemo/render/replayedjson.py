"""The JSON form of a replay's outcome, `dpdemo.replay/1`: what stands under each key."""

import json
from typing import Literal

from typing_extensions import TypedDict  # pydantic brings it, and needs it before Python 3.12

from dpdemo.render.jsonform import finite
from dpdemo.verdict import Difference, Replay, Verdict

SCHEMA: Literal["dpdemo.replay/1"] = "dpdemo.replay/1"


class DifferenceJson(TypedDict):
    """Where two records differ: in batch 0 before the first, and in which field of which tensor.

    The numbers are null where there is nothing to subtract, as for a shape, or where it gives no finite one.
    """

    batch: int
    what: str
    field: str
    expected: str
    got: str
    absolute: float | None
    relative: float | None
    tolerance: float | None


class ReplayJson(TypedDict):
    """What came of a replay: `first` is where it first differs, `largest` the largest round-off."""

    schema: Literal["dpdemo.replay/1"]
    verdict: Verdict
    devices: list[str]
    virtual: bool
    torch: str
    recorded_torch: str
    recorded_virtual: bool
    recorded_devices: list[str]
    num_batches: int
    num_tensors: int
    num_inexact: int
    largest: DifferenceJson | None
    first: DifferenceJson | None


def replay_json(replay: Replay) -> str:
    """Write the outcome as JSON text."""
    found = ReplayJson(
        schema=SCHEMA,
        verdict=replay.verdict,
        devices=list(replay.devices),
        virtual=replay.virtual,
        torch=replay.torch,
        recorded_torch=replay.recorded_torch,
        recorded_virtual=replay.recorded_virtual,
        recorded_devices=list(replay.recorded_devices),
        num_batches=replay.num_batches,
        num_tensors=replay.num_tensors,
        num_inexact=replay.num_inexact,
        largest=_difference(replay.largest),
        first=_difference(replay.first),
    )
    return json.dumps(found, indent=1) + "\n"


def _difference(found: Difference | None) -> DifferenceJson | None:
    if found is None:
        return None
    return DifferenceJson(
        batch=found.batch,
        what=found.what,
        field=found.field,
        expected=found.expected,
        got=found.got,
        absolute=finite(found.absolute),
        relative=finite(found.relative),
        tolerance=finite(found.tolerance),
    )
