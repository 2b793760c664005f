"""A sentence or two to learn from each step of an explanation.

A sentence names a rule, such as torch.chunk's, only if the observation follows it.
"""

from dataclasses import replace
from typing import TypeVar

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.results.explanation import Explanation, Part, Step
from dpdemo.sizes import size
from dpdemo.wording import counted

_Explained = TypeVar("_Explained", bound=Explanation)


def with_lessons(explanation: _Explained) -> _Explained:
    """Add to each step what it did, and why."""
    steps = (replace(step, lesson=_LESSONS[step.name](explanation, step)) for step in explanation.steps)
    return replace(explanation, steps=tuple(steps))


def _scatter(explanation: Explanation, step: Step) -> str:
    whole, rows = _rows(step.given[0], explanation), [_rows(made, explanation) for made in step.made]
    if len(explanation.devices) == 1:
        return "One device gets the whole batch as its only chunk."
    idle = f" No rows are left for {explanation.idle}: idle." if explanation.idle else ""
    return _cutting(whole, rows, explanation) + idle


def _rows(piece: Part, explanation: Explanation) -> int:
    dim = explanation.config.dim
    shape = piece.shapes[0][1] if piece.shapes else ()
    return shape[dim] if len(shape) > dim else 0


def _cutting(whole: int, rows: list[int], explanation: Explanation) -> str:
    num_devices = len(explanation.devices)
    if not whole or rows != list(split_batch(whole, num_devices).sizes()):
        return f"The {whole} rows were cut into {counted(len(rows), 'chunk')}: {_sum(rows)}."
    each = f"torch.chunk makes chunks of ceil({whole} / {num_devices}) = {counted(rows[0], 'row')}"
    if len(set(rows)) == 1:
        return f"{each}, {counted(len(rows), 'chunk')} in all."
    return f"{each}; the last one has the {rows[-1]} that {'is' if rows[-1] == 1 else 'are'} left."


def _replicate(explanation: Explanation, step: Step) -> str:
    module = explanation.module
    held = f"{counted(module.num_parameters, 'parameter tensor')} ({size(module.parameter_bytes)})"
    if module.num_buffers:
        held += f" and {counted(module.num_buffers, 'buffer')} ({size(module.buffer_bytes)})"
    if not step.moved:
        return f"The module has {held}; none of it goes to another device."
    return f"Every forward copies {held} to each other device that has a chunk."


def _parallel_apply(_: Explanation, step: Step) -> str:
    if len(step.made) == 1:
        return "The one replica runs forward on the one chunk."
    return f"{len(step.made)} replicas run forward on their chunks, each in a thread of its own."


def _gather(explanation: Explanation, step: Step) -> str:
    is_chosen = explanation.config.output_device is not None
    why = "the output_device" if is_chosen else "the first of device_ids"
    rows, whole = [_rows(piece, explanation) for piece in step.given], _rows(step.made[0], explanation)
    sums = f": {_sum(rows)} = {whole}" if sum(rows) == whole and len(rows) > 1 else ""
    dim = explanation.config.dim
    return f"On {step.made[0].device}, {why}, the outputs are joined along dimension {dim}{sums}."


def _plain_call(explanation: Explanation, _: Step) -> str:
    if explanation.devices.kind == "cpu":
        return "No GPU is visible, so DataParallel calls the module itself: no scatter, replicate or gather."
    return "On one device there is nothing to replicate or gather: DataParallel calls the module itself."


_LESSONS = {
    "scatter": _scatter,
    "replicate": _replicate,
    "parallel_apply": _parallel_apply,
    "gather": _gather,
    "plain call": _plain_call,
}


def _sum(rows: list[int]) -> str:
    shown = map(str, rows if len(rows) <= _MOST_TERMS else [rows[0], rows[1], "...", rows[-1]])
    return " + ".join(shown)


_MOST_TERMS = 8
