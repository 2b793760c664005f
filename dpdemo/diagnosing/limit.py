"""The case that `doctor` checks: with fewer rows and smaller images where a batch is too large for a CPU."""

from collections.abc import Callable
from dataclasses import replace

from dpdemo.diagnosing.case import Case
from dpdemo.errors import DpdemoError
from dpdemo.models.inputspec import read_input
from dpdemo.results.memory import MemoryReport
from dpdemo.results.memorydata import PARTS

MOST_BYTES = 256 * 2**20
"""What a step of the checked batch may hold beside the model, over all GPUs: a check runs about twenty."""
_MODELS = {"parameters", "gradients", "optimizer state", "buffers", "replica copies", "library workspaces"}
_LEAST_ROWS, _LEAST_PIXELS, _IMAGE = 2, 32, 4


def limited(case: Case, predict: Callable[[Case], MemoryReport]) -> Case:
    """Return the case with as many rows, and then pixels, as keep its step within MOST_BYTES.

    A model that does not run with a smaller image keeps its own; inputs that come with a model stay.

    Args:
        case: the case, with its inputs as shapes.
        predict: predicts the memory of a case.

    """
    if not case.inputs or case.batch_size is None:
        return case
    held = _held(predict(case))
    if held <= MOST_BYTES:
        return case
    least = min(case.batch_size, _LEAST_ROWS * case.num_gpus)
    rows = max(least, case.batch_size * MOST_BYTES // held // case.num_gpus * case.num_gpus)
    case = _resized(case, lambda shape: (rows, *shape[1:]) if shape[0] == case.batch_size else shape, rows)
    while _held(predict(case)) > MOST_BYTES:
        smaller = _resized(case, _halved, rows)
        if smaller == case:
            break
        try:
            predict(smaller)
        except DpdemoError:
            break
        case = smaller
    return case


def _held(report: MemoryReport) -> int:
    """Add up what grows with the batch: all but the model itself."""
    return sum(
        amount
        for gpu in report.gpus
        for name, amount in zip(PARTS, gpu.parts, strict=False)
        if name not in _MODELS
    )


def _halved(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Halve the sides of an image; leave all else as it is."""
    if len(shape) < _IMAGE or min(shape[-2:]) < 2 * _LEAST_PIXELS:
        return shape
    return (*shape[:-2], *(side // 2 for side in shape[-2:]))


def _resized(case: Case, change: Callable[[tuple[int, ...]], tuple[int, ...]], rows: int) -> Case:
    return replace(case, batch_size=rows, inputs=tuple(_rewritten(text, change) for text in case.inputs))


def _rewritten(text: str, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> str:
    """Change the shape in a text such as `mask=32x128:bool`."""
    shape = change(read_input(text).shape)
    name, sign, rest = text.rpartition("=")
    _, colon, kind = rest.partition(":")
    return f"{name}{sign}{'x'.join(map(str, shape))}{colon}{kind}"
