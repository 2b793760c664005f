"""What a learner should take from each step of an explanation, in a sentence or two.

A sentence names a rule, such as torch.chunk's, only where what was seen follows it.
"""

from collections.abc import Sequence

from dpdemo.explanation import Explanation, Part, Step
from dpdemo.render.sizes import counted, size
from dpdemo.split import split_batch
from dpdemo.tolerance import tolerance_of


def lesson(explanation: Explanation, step: Step) -> str:
    """Say what a step did, and why."""
    return " ".join(filter(None, _LESSONS[step.name](explanation, step)))


def _scatter(explanation: Explanation, step: Step) -> tuple[str, ...]:
    whole, rows = _rows(step.given[0], explanation), [_rows(made, explanation) for made in step.made]
    stays = [made.label for made in step.made if made.device == step.given[0].device]
    if len(explanation.devices) == 1:
        return ("One device gets the whole batch as its only chunk.", _staying(stays, step))
    return (_cutting(whole, rows, len(explanation.devices)), _idling(explanation), _staying(stays, step))


def _rows(piece: Part, explanation: Explanation) -> int:
    dim = explanation.config.dim
    shape = piece.shapes[0][1] if piece.shapes else ()
    return shape[dim] if len(shape) > dim else 0


def _cutting(whole: int, rows: list[int], num_devices: int) -> str:
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


def same_as_data_parallel(explanation: Explanation) -> str:
    """Say how the result compares with the genuine DataParallel's."""
    proof = explanation.proof
    if proof.equals_data_parallel:
        return "equal to DataParallel(module)(input), bit for bit"
    if proof.data_parallel_difference is None:
        return "NOT what DataParallel(module)(input) returns: other shapes"
    return f"NOT equal to DataParallel(module)(input): {proof.data_parallel_difference:.3g} apart"


def same_as_plain(explanation: Explanation) -> str:
    """Say how the result compares with a plain call of the module on one device."""
    proof = explanation.proof
    call = f"module(input) on {proof.plain_device or 'one device'}"
    if proof.plain_difference is None:
        return f"of other shapes than {call}: what has no batch dimension is gathered as a vector"
    if proof.plain_difference == 0:
        return f"equal to {call}, bit for bit"
    tolerance = tolerance_of(proof.plain_dtype)
    if proof.plain_difference <= tolerance.absolute + tolerance.relative * proof.plain_scale:
        return f"equal to {call} to round-off: {proof.plain_difference:.3g} apart at most"
    return (
        f"up to {proof.plain_difference:.3g} from {call} (largest number {proof.plain_scale:.3g}): "
        "chunks are treated otherwise than the whole batch, as by BatchNorm in training"
    )


def _sum(rows: list[int]) -> str:
    if len(rows) > _MOST_TERMS:
        return f"{rows[0]} + {rows[1]} + ... + {rows[-1]}"
    return " + ".join(map(str, rows))


_MOST_TERMS = 8
