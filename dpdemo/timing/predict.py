"""`predict_speedup`: what more GPUs cost and gain, from bytes, a link, and a measured step if there is."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.results.speedup import SpeedupReport
from dpdemo.results.speedupdata import (
    Anchor,
    Estimate,
    Link,
    PhaseCost,
    Scaling,
    Strategy,
    Verdict,
    Way,
    Workload,
)
from dpdemo.timing.anchors import one_gpu_ms
from dpdemo.timing.steps import CASES, FAST, MIDDLE, SLOW, AnyStep, Case, DataParallelStep, DdpStep

METHOD_ERROR = 0.05
"""The largest error of a speed-up's point on the project's published steps; a test measures it again."""

_FOREVER_MS = 1e9


def predict_speedup(
    workload: Workload, link: Link, gpus: Sequence[int], anchors: Sequence[Anchor] = ()
) -> SpeedupReport:
    """Predict what a step over several GPUs costs beside that of one, and what it gains.

    Args:
        workload: one GPU's share of a step; see `workload.py` and `observe.py`.
        link: how the GPUs are joined; see `LINKS`.
        gpus: numbers of GPUs, each 1 or more.
        anchors: measured steps of one GPU, with different rows; without them there are no milliseconds of
            computation, but bytes, copies and the break-even.

    """
    found = tuple(sorted(anchors, key=lambda anchor: anchor.rows or 0))
    ways = [
        _way(workload, link, num_gpus, strategy, found)
        for num_gpus in gpus
        for strategy in ("DataParallel", "DDP")
    ]
    return SpeedupReport(
        workload=workload,
        link=link,
        anchors=found,
        method_error=METHOD_ERROR,
        ways=tuple(ways),
    )


def _way(
    workload: Workload, link: Link, num_gpus: int, strategy: Strategy, anchors: tuple[Anchor, ...]
) -> Way:
    make = DataParallelStep if strategy == "DataParallel" else DdpStep
    weak = make(workload, link, (1.0,) * num_gpus)
    strong = make(workload, link, _divided(workload.rows, num_gpus, strategy))
    way = Way(
        num_gpus=num_gpus,
        strategy=strategy,
        weak=_scaling(weak, num_gpus, workload, anchors),
        strong=_scaling(strong, 1, workload, anchors),
        timeline=weak.timeline(one_gpu_ms(anchors, workload, 1.0, MIDDLE) if anchors else None),
    )
    if isinstance(weak, DdpStep) or workload.launches is None or num_gpus < 2:
        return way
    return replace(way, lock_ms=_estimate(weak.lock_ms), replicate_ms=_estimate(weak.replicate_ms))


def _divided(rows: int | None, num_gpus: int, strategy: Strategy) -> tuple[float, ...]:
    """Divide one GPU's batch as the strategy does, as parts of it."""
    if rows is None:
        return (1 / num_gpus,) * num_gpus
    if strategy == "DataParallel":
        return tuple(size / rows for size in split_batch(rows, num_gpus).sizes())
    return (ceil(rows / num_gpus) / rows,) * num_gpus


def _scaling(step: AnyStep, batches: int, workload: Workload, anchors: tuple[Anchor, ...]) -> Scaling:
    """Compare a step over several GPUs with what one GPU takes for `batches` batches."""
    rows = None
    if workload.rows is not None:
        rows = tuple(round(share * workload.rows) for share in step.shares)
    scaling = Scaling(rows=rows, phases=_phases(step), break_even_ms=_break_even(step, batches))
    return _with_times(scaling, step, batches, workload, anchors) if anchors else scaling


def _phases(step: AnyStep) -> tuple[PhaseCost, ...]:
    ends = [list(step.phases(case)) for case in CASES]
    return tuple(
        PhaseCost(name=fast[0], num_bytes=fast[1], ms=Estimate(low=fast[2], point=middle[2], high=slow[2]))
        for fast, middle, slow in zip(*ends, strict=True)
    )


def _estimate(cost: Callable[[Case], float]) -> Estimate:
    low, point, high = (cost(case) for case in CASES)
    return Estimate(low=low, point=point, high=high)


def _break_even(step: AnyStep, batches: int) -> Estimate | None:
    """Find the step of one GPU from which several are faster; None where no step is long enough.

    What several GPUs cost in addition grows more slowly than what they save, so there is one such step.
    """
    largest = max(step.shares)

    def gain(one_gpu: float, case: Case) -> float:
        each = one_gpu * largest  # of the fullest GPU
        error = {FAST: 1 + METHOD_ERROR, MIDDLE: 1.0, SLOW: 1 - METHOD_ERROR}[case]
        return one_gpu * batches * error - each - step.extra_ms(each, case)

    if step.num_used < 2 or any(gain(_FOREVER_MS, case) <= 0 for case in CASES):
        return None
    return _estimate(lambda case: _root(lambda ms: gain(ms, case)))


def _root(gain: Callable[[float], float]) -> float:
    low, high = 0.0, _FOREVER_MS
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if gain(middle) > 0 else (middle, high)
    return high


def _with_times(
    scaling: Scaling, step: AnyStep, batches: int, workload: Workload, anchors: tuple[Anchor, ...]
) -> Scaling:
    """Add what an anchor tells: the step, the speed-up and the verdict."""
    largest = max(step.shares)

    def several(case: Case) -> float:
        each = one_gpu_ms(anchors, workload, largest, case)
        return each + step.extra_ms(each, case)

    whole = _estimate(lambda case: one_gpu_ms(anchors, workload, 1.0, case) * batches)
    steps = _estimate(several)
    error = METHOD_ERROR if step.num_used > 1 else 0.0
    gained = Estimate(
        low=whole.high / steps.high * (1 - error),
        point=whole.point / steps.point,
        high=whole.low / steps.low * (1 + error),
    )
    gpus = len(step.shares)
    return replace(
        scaling,
        one_gpu_ms=whole,
        step_ms=steps,
        speedup=gained,
        efficiency=Estimate(low=gained.low / gpus, point=gained.point / gpus, high=gained.high / gpus),
        verdict=_verdict(gained, step),
    )


def _verdict(gained: Estimate, step: AnyStep) -> Verdict:
    if gained.low > 1:
        return "pays"
    return "does not pay" if gained.high < 1 or step.num_used < 2 else "cannot tell"
