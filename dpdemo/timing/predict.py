"""`predict_speedup`: the costs of several GPUs, and the step of one GPU from which they pay."""

from collections.abc import Callable
from math import ceil

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.results.speedup import Ends, Link, SpeedupReport, Way, Workload
from dpdemo.timing.steps import FAST, SLOW, AnyStep, DataParallelStep, DdpStep

METHOD_ERROR = 0.05
"""By so much a break-even is widened at both ends: the error of the method on published steps."""
_FOREVER_MS = 1e9


def predict_speedup(workload: Workload, link: Link, num_gpus: int) -> SpeedupReport:
    """Predict the costs of sharing a batch over several GPUs, under DataParallel and under DDP.

    Args:
        workload: the whole batch on one GPU; see `observe.py`.
        link: the connection of the GPUs; see `LINKS`.
        num_gpus: 1 or more.

    """
    rows = workload.rows
    chunks = [size / rows for size in split_batch(rows, num_gpus).sizes()]
    dp = DataParallelStep(workload, link, chunks)
    ddp = DdpStep(workload, link, [ceil(rows / num_gpus) / rows] * num_gpus)
    launched = (_ends(dp.replicate_ms), _ends(dp.launch_ms)) if workload.launches and len(chunks) > 1 else ()
    return SpeedupReport(workload, link, num_gpus, (_way("DataParallel", dp, *launched), _way("DDP", ddp)))


def _way(
    strategy: str, step: AnyStep, replicate_ms: Ends | None = None, launch_ms: Ends | None = None
) -> Way:
    return Way(
        strategy,
        tuple(round(share * step.work.rows) for share in step.shares),
        {name: num_bytes for name, (num_bytes, _) in step.copies(FAST).items()},
        _ends(lambda place: sum(step.copies_ms(place).values())),
        replicate_ms,
        launch_ms,
        _break_even(step),
    )


def _ends(cost: Callable[[float], float]) -> Ends:
    return Ends(cost(FAST), cost(SLOW))


def _break_even(step: AnyStep) -> Ends | None:
    """Find the step of one GPU from which several are faster; None where no step is long enough.

    The cost of several GPUs grows more slowly than what they save, so there is one such step.
    """
    largest = max(step.shares)

    def gain(one_gpu: float, place: float) -> float:
        alone = one_gpu * largest  # of the fullest GPU
        error = METHOD_ERROR if place == FAST else -METHOD_ERROR
        return one_gpu * (1 + error) - alone - step.extra_ms(alone, place)

    if len(step.shares) < 2 or gain(_FOREVER_MS, SLOW) <= 0:
        return None
    return _ends(lambda place: _root(lambda ms: gain(ms, place)))


def _root(gain: Callable[[float], float]) -> float:
    low, high = 0.0, _FOREVER_MS
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if gain(middle) > 0 else (middle, high)
    return high
