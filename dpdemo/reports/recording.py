"""A recording: what DataParallel did with an epoch's first batches, in checksums that others can repeat.

Each tensor is kept as the SHA-256 of its bytes, which tells equal from unequal, and as a few numbers, which
tell how far apart unequal ones are: sum, sum of magnitudes, largest magnitude, and values at places drawn
from a seed. Floats are written as Python's repr, the shortest text that reads back as the same number.
"""

import json
import os
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import pydantic
from pydantic import Field

from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.errors import UsageError
from dpdemo.reading import read_json
from dpdemo.saving import replacing
from dpdemo.wording import show

SCHEMA: Literal["dpdemo.recording/1"] = "dpdemo.recording/1"
DEFAULT_BATCHES = 4
"""Batches recorded unless said otherwise: the tutorial's whole epoch, in some twenty kilobytes."""

Number = Annotated[float, Field(allow_inf_nan=False)] | Literal["nan", "inf", "-inf"]
"""JSON has no word for a number that is not finite."""


class _Frozen(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, strict=True, extra="forbid")


class TensorRecord(_Frozen):
    """One tensor on a batch's way: `what` says which, such as `chunk 0` or `gradient of fc.weight`."""

    what: str
    device: str
    dtype: str
    shape: tuple[Annotated[int, Field(ge=0)], ...]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    sum: Number
    abs_sum: Number
    max_abs: Number
    sample: tuple[Number, ...]


class RecordedBatch(_Frozen):
    """One batch's tensors, in the order in which they came to be: its number counts from 1."""

    number: Annotated[int, Field(ge=1)]
    tensors: Annotated[tuple[TensorRecord, ...], Field(min_length=1)]


class Recording(_Frozen):
    """What DataParallel did for one config: the weights it began with, then batch by batch.

    `config["gpus"]` holds the ordinals that were used, null for the CPU; `epoch_batches` counts the epoch's
    batches, of which the first are recorded.
    """

    torch: str
    virtual: bool
    device_names: tuple[str, ...]
    config: dict[str, object]
    epoch_batches: Annotated[int, Field(ge=1)]
    weights: tuple[TensorRecord, ...]
    batches: Annotated[tuple[RecordedBatch, ...], Field(min_length=1)]

    @property
    def num_tensors(self) -> int:
        """Tensors in the recording, weights included."""
        return len(self.weights) + sum(len(batch.tensors) for batch in self.batches)

    def checked_config(self, where: str = "a recording") -> Config:
        """Read the config.

        Raises:
            UsageError: if it is not valid; `where` says where it stands.

        """
        return make_config(self.config, dict.fromkeys(self.config, f"{where}, `config`"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recording as JSON, whole or not at all.

        Raises:
            RunError: if it cannot be written; what stood there before is untouched.

        """
        with replacing(path) as file:
            file.writelines(_pieces(self))


class RecordingFile(Recording):
    """A recording as `save` writes it: the schema of the file is made from this."""

    version: Literal["dpdemo.recording/1"] = Field(alias="schema")


def _pieces(recording: Recording) -> Iterator[str]:
    """Yield the JSON, a tensor per line, so that two recordings can be compared by `diff` too."""
    whole = recording.model_dump(mode="json")
    batches, weights = whole.pop("batches"), whole.pop("weights")
    yield "{\n" + f' "schema": {json.dumps(SCHEMA)},\n'
    for key, value in whole.items():
        yield f" {json.dumps(key)}: {json.dumps(value)},\n"
    yield f' "weights": [{_lines(weights, "  ")}],\n "batches": [\n'
    for index, batch in enumerate(batches):
        yield ",\n" if index else ""
        yield f'  {{"number": {batch["number"]}, "tensors": [{_lines(batch["tensors"], "   ")}]}}'
    yield "\n ]\n}\n"


def _lines(items: Iterable[object], indent: str) -> str:
    return "".join(
        f"{',' if index else ''}\n{indent}{json.dumps(item, allow_nan=False)}"
        for index, item in enumerate(items)
    )


def load_recording(path: str | os.PathLike[str]) -> Recording:
    """Read a recording that `save` wrote.

    Args:
        path: the file.

    Returns:
        The recording, whose form has been checked.

    Raises:
        UsageError: if the file cannot be read, is damaged, or is of another version.

    """
    place = os.fspath(path)
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:  # UnicodeDecodeError and JSONDecodeError too
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"expected a recording, got a file that cannot be read as JSON ({why}) - at {place}", hint=_ANEW
        ) from None
    _check_schema(found, place)
    values = {key: value for key, value in found.items() if key != "schema"}
    try:
        recording = Recording.model_validate_json(json.dumps(values))
    except pydantic.ValidationError as error:
        raise _explain(error, place) from None
    recording.checked_config(place)
    _check_numbers(recording, place)
    return recording


_ANEW = "record it anew: dpdemo record --virtual --gpus 0,1,2 FILE.json"


def _check_schema(found: object, place: str) -> None:
    if not isinstance(found, dict) or "schema" not in found:
        raise UsageError(f"expected a recording with the key `schema`, got none - at {place}", hint=_ANEW)
    if found["schema"] != SCHEMA:
        raise UsageError(
            f"expected schema {SCHEMA}, got {show(found['schema'])} - at {place}, `schema`",
            hint="replay it with the version of dpdemo that wrote it, or record it anew",
        )


def _check_numbers(recording: Recording, place: str) -> None:
    for index, batch in enumerate(recording.batches):
        if batch.number != index + 1:
            raise UsageError(
                f"expected batch {index + 1}, got {batch.number} - at {place}, `batches[{index}].number`",
                hint=_ANEW,
            )


def _explain(error: pydantic.ValidationError, place: str) -> UsageError:
    """Turn pydantic's first finding into expected, got, where, next step."""
    found = error.errors(include_url=False)[0]
    is_unknown = found["type"] == "extra_forbidden"
    where = ""
    for part in found["loc"]:
        if isinstance(part, int):
            where += f"[{part}]"
        elif part in _KEYS or is_unknown or not where:  # the rest names the arms of a union
            where += f".{part}" if where else str(part)
    if is_unknown:
        return UsageError(f"expected a known key, got `{where}` - at {place}", hint=_ANEW)
    if found["type"] == "missing":
        return UsageError(f"expected the key `{where}`, got none - at {place}", hint=_ANEW)
    wanted = str(found["msg"]).removeprefix("Input should be ").removeprefix("a valid ")
    return UsageError(f"expected {wanted}, got {show(found['input'])} - at {place}, `{where}`", hint=_ANEW)


_KEYS = {*TensorRecord.model_fields, *RecordedBatch.model_fields, *Recording.model_fields}
