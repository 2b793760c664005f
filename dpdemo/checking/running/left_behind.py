"""Tensors that a model holds beside its parameters and buffers, when it is moved to a GPU.

Some go along, by an `_apply` of the model's own. Where others must and do not, the model runs on no GPU, and
could not be checked: they are put there too, as its author will do next. Replicas share them all the same.
"""

from dataclasses import replace

from dpdemo.checking.evidence import Held, Scan
from dpdemo.checking.observing.scan import scan
from dpdemo.checking.running.runs import Runner
from dpdemo.models.inputs import Arguments


def with_moves(found: Scan, runner: Runner) -> Scan:
    """Note of the tensors on the CPU which are on the GPU once the model is moved there."""
    if not any(map(_is_on_cpu, found.held)):
        return found
    moved = {(one.path, one.kind): one for one in scan(runner.source.fresh_on(runner.first), None).held}
    held = tuple(
        replace(one, moved_along=True)
        if _is_on_cpu(one) and not _is_on_cpu(moved.get((one.path, one.kind), one))
        else one
        for one in found.held
    )
    return replace(found, held=held)


def left_behind(found: Scan, runner: Runner, mode: str, given: Arguments) -> tuple[str, ...]:
    """List by path what must be on the GPU for a plain call to run; nothing where it does, or never will."""
    held = tuple(one.path for one in found.held if _is_on_cpu(one) and not one.moved_along)
    if not held or runner.run_alone(mode, given)[0].error is None:
        return ()
    runner.source.bring_along(held)
    if runner.run_alone(mode, given)[0].error is None:
        return held
    runner.source.bring_along(())
    return ()


def _is_on_cpu(held: Held) -> bool:
    return held.kind in {"tensor", "module", "callable"} and held.device == "cpu"
