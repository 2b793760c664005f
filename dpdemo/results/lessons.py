"""A sentence or two to learn from each step of an explanation.

A sentence names a rule, such as torch.chunk's, only if the observation follows it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.arithmetic.weights import short_list
from dpdemo.config.weights import is_weighted, split_of, weights_of
from dpdemo.results.explanation import Explanation, Part, Step
from dpdemo.sizes import size
from dpdemo.wording import counted

_Explained = TypeVar("_Explained", bound=Explanation)


def with_lessons(explanation: _Explained) -> _Explained:
    """Add to each step what it did, and why."""
    steps = (
        replace(step, lesson=" ".join(filter(None, _LESSONS[step.name](explanation, step))))
        for step in explanation.steps
    )
    return replace(explanation, steps=tuple(steps))


def _scatter(explanation: Explanation, step: Step) -> tuple[str, ...]:
    whole, rows = _rows(step.given[0], explanation), [_rows(made, explanation) for made in step.made]
    stays = [made.label for made in step.made if made.device == step.given[0].device]
    if len(explanation.devices) == 1:
        return ("One device gets the whole batch as its only chunk.", _staying(stays, step))
    cutting = _weighing if is_weighted(explanation.config) else _cutting
    return (cutting(whole, rows, explanation), _idling(explanation), _staying(stays, step))


def _rows(piece: Part, explanation: Explanation) -> int:
    dim = explanation.config.dim
    shape = piece.shapes[0][1] if piece.shapes else ()
    return shape[dim] if len(shape) > dim else 0


def _weighing(whole: int, rows: list[int], explanation: Explanation) -> str:
    config = explanation.config
    key = "chunks" if config.chunks is not None else "weights"
    if rows != list(split_of(config, whole, len(explanation.devices)).sizes()):
        return f"The {whole} rows were cut into {counted(len(rows), 'chunk')}: {_sum(rows)}."
    shares = short_list(weights_of(config) or ())
    return (
        f"The {key} {shares} share out {counted(whole, 'row')}: {_sum(rows)}. Each device gets the whole "
        "part of its due, and what is left goes to the largest fractions."
    )


def _cutting(whole: int, rows: list[int], explanation: Explanation) -> str:
    num_devices = len(explanation.devices)
    split = split_batch(whole, num_devices)
    if not whole or rows != list(split.sizes()):
        return f"The {whole} rows were cut into {counted(len(rows), 'chunk')}: {_sum(rows)}."
    said = f"torch.chunk makes chunks of ceil({whole} / {num_devices}) = {counted(rows[0], 'row')}"
    if len(set(rows)) == 1:
        return f"{said}, {counted(len(rows), 'chunk')} in all."
    return f"{said}; the last one has the {rows[-1]} that {'is' if rows[-1] == 1 else 'are'} left."


def _idling(explanation: Explanation) -> str:
    idle = explanation.idle
    if not idle:
        return ""
    if is_weighted(explanation.config):
        return f"{idle} {'gets' if len(idle) == 1 else 'get'} no row, and so no replica."
    return f"No rows are left for {idle}: idle."


def _staying(stays: Sequence[str], step: Step) -> str:
    device = step.given[0].device
    if not stays:
        return f"The input lies on {device}, so every chunk is copied."
    if len(stays) > 1:
        return f"The input lies on {device}: {len(stays)} chunks need no copy between devices."
    return f"The input lies on {device}, so {stays[0]} needs no copy."


def _replicate(explanation: Explanation, step: Step) -> tuple[str, ...]:
    module = explanation.module
    what = f"{counted(module.num_parameters, 'parameter tensor')} ({size(module.parameter_bytes)})"
    if module.num_buffers:
        what += f" and {counted(module.num_buffers, 'buffer')} ({size(module.buffer_bytes)})"
    cut = ""
    if explanation.idle:
        cut = f"Only {counted(len(step.made), 'replica')}: one for each chunk, not for each device."
    if not step.moved:
        return (f"The module has {what}; none of it goes to another device.", cut)
    source = step.given[0].device
    return (f"Each other device gets a copy of {what} from {source}, anew in every forward.", cut)


def _parallel_apply(_: Explanation, step: Step) -> tuple[str, ...]:
    if len(step.made) == 1:
        return ("The one replica runs forward on the one chunk.",)
    how = f"{len(step.made)} replicas run forward, each on its own chunk and in a thread of its own"
    return (f"{how}.", "The model itself copied between devices." if step.moved else "")


def _gather(explanation: Explanation, step: Step) -> tuple[str, ...]:
    target = step.made[0].device
    why = (
        f"{target}, the output_device,"
        if explanation.config.output_device is not None
        else f"{target}, the first of device_ids,"
    )
    rows = [_rows(piece, explanation) for piece in step.given]
    whole = _rows(step.made[0], explanation)
    sums = f": {_sum(rows)} = {whole}" if sum(rows) == whole and len(rows) > 1 else ""
    return (f"On {why} the outputs are joined along dimension {explanation.config.dim}{sums}.",)


def _plain_call(explanation: Explanation, _: Step) -> tuple[str, ...]:
    if explanation.devices.kind == "cpu":
        return (
            "No GPU is visible, so DataParallel calls the module itself: no scatter, replicate or gather.",
        )
    return ("On one device there is nothing to replicate or gather: DataParallel calls the module itself.",)


_LESSONS = {
    "scatter": _scatter,
    "replicate": _replicate,
    "parallel_apply": _parallel_apply,
    "gather": _gather,
    "plain call": _plain_call,
}


def _sum(rows: list[int]) -> str:
    if len(rows) > _MOST_TERMS:
        return f"{rows[0]} + {rows[1]} + ... + {rows[-1]}"
    return " + ".join(map(str, rows))


_MOST_TERMS = 8
