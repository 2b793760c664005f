"""What the page shows of a model: what `dpdemo explain` and `dpdemo memory` said of it, or saved as JSON."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from dpdemo.errors import UsageError
from dpdemo.reading import read_json
from dpdemo.reports.explanation import Explanation
from dpdemo.reports.lesson import HeldBytes, ModelBytes, PredictedMemory
from dpdemo.reports.memory import MemoryReport, Phase

Found = TypeVar("Found")


def read_model_bytes(path: Path) -> ModelBytes:
    """Read the bytes of a sample's input and output, and of a replica.

    A number that is not the same for each sample (a tensor that is not split, a lone scalar) is None.

    Raises:
        UsageError: if the file cannot be read, or is not what `dpdemo explain` saves.

    """
    return _read(path, "explain", Explanation.SCHEMA, _model_bytes)


def read_memory(path: Path) -> PredictedMemory:
    """Read what each GPU holds at its fullest moment, and in each phase of the step.

    Raises:
        UsageError: if the file cannot be read, or is not what `dpdemo memory` saves.

    """
    return _read(path, "memory", MemoryReport.SCHEMA, _memory)


def model_bytes_of(explanation: Explanation) -> ModelBytes:
    """Take the bytes of a sample's input and output, and of a replica, from what `explain` saw."""
    return _model_bytes(explanation.to_dict())


def memory_of(report: MemoryReport) -> PredictedMemory:
    """Take what each GPU holds, at its fullest moment and in each phase, from what `memory` predicted."""
    return _memory(report.to_dict())


def _model_bytes(found: dict[str, Any]) -> ModelBytes:
    batch, module, steps = found["batch_size"], found["module"], found["steps"]
    return ModelBytes(
        name=found["model"],
        input_bytes=_per_sample(steps[0]["given"], batch),
        output_bytes=_per_sample(steps[-1]["made"], batch),
        module_bytes=module["parameter_bytes"] + module["buffer_bytes"],
        source="as dpdemo explain saw them",
    )


def _per_sample(parts: list[dict[str, Any]], batch: int) -> int | None:
    tensors = [part for part in parts if not part["label"].startswith(("module", "replica"))]
    num_bytes = sum(part["num_bytes"] for part in tensors)
    return None if num_bytes % batch else int(num_bytes // batch)


def _memory(found: dict[str, Any]) -> PredictedMemory:
    return PredictedMemory(found["model"], found["batch_size"], tuple(map(_held, found["gpus"])))


def _held(gpu: dict[str, Any]) -> HeldBytes:
    parts = ((name.replace("_", " "), num_bytes) for name, num_bytes in gpu["parts_bytes"].items())
    held = (gpu["device"], gpu["rows"], gpu["peak_bytes"], gpu["phase"])
    return HeldBytes(*held, tuple(parts), tuple(_most_by_phase(gpu.get("moments", ()))))


def _most_by_phase(moments: Sequence[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    """Yield the most of each phase that there was, in the order of a step."""
    for phase in get_args(Phase):
        held = [moment["live_bytes"] for moment in moments if moment["phase"] == phase]
        if held:
            yield phase, max(held)


def _read(path: Path, command: str, schema: str, reader: Callable[[dict[str, object]], Found]) -> Found:
    option = "explained" if command == "explain" else command
    try:
        found = read_json(path)
        if found["schema"] == schema:
            return reader(found)
        got = "another report"
    except OSError as error:
        got = error.strerror or str(error)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        got = "something else"
    raise UsageError(
        f"expected what `dpdemo {command}` saves as .json, got {got} in {str(path)!r} - at "
        f"option `--{option}`",
        hint=f"make it first: dpdemo {command} --gpus 3 --save {option}.json",
    )
