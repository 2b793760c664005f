"""Tensors that a model holds beside its parameters and buffers, when it is moved to a GPU.

Some go along, by an `_apply` of the model's own. Where others must and do not, the model runs on no GPU, and
could not be checked: they are put there too, as its author will do next. Replicas share them all the same.
"""

from dataclasses import replace

from dpdemo.checking.evidence import Held, Scan
from dpdemo.checking.observing.scan import scan
from dpdemo.checking.running.runs import Runner
from dpdemo.models.inputs import Arguments


def as_placed(found: Scan, runner: Runner) -> Scan:
    """Note where what a model holds is once the model is moved to the first GPU."""
    if not any(map(_is_on_cpu, found.held)):
        return found
    return replace(found, held=scan(runner.source.fresh_on(runner.first), None).held)


def left_behind(found: Scan, runner: Runner, given: Arguments) -> tuple[str, ...]:
    """List by path what must be on the GPU for a plain call to run; nothing where it does, or never will."""
    held = tuple(item.path for item in found.held if _is_on_cpu(item))
    if not held or _runs(runner, given):
        return ()
    runner.source.bring_along(held)
    if _runs(runner, given):
        return held
    runner.source.bring_along(())
    return ()


def _runs(runner: Runner, given: Arguments) -> bool:
    return any(runner.run_alone(mode, given)[0].error is None for mode in ("train", "eval"))


def _is_on_cpu(held: Held) -> bool:
    return held.kind in {"tensor", "module", "outer"} and held.device == "cpu"
