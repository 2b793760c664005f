"""A measured step of one GPU, `49ms` or `49ms@8`, and what it says of other numbers of rows."""

from collections.abc import Sequence
from itertools import pairwise

from dpdemo.config.fields import INT64_MAX
from dpdemo.config.numbers import scaled_number, whole_number
from dpdemo.errors import UsageError
from dpdemo.results.speedupdata import Anchor, Workload
from dpdemo.timing.costs import OPERATOR_MS
from dpdemo.timing.steps import Case

_MILLISECONDS = {"us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}


def read_anchor(text: str) -> Anchor:
    """Read `49ms`, `0.05s` or `49ms@8`: a step of one GPU, and with how many rows it was measured.

    Raises:
        UsageError: for anything else.

    """
    time, at, written = text.partition("@")
    ms = scaled_number(time, _MILLISECONDS, 1e-3, 1e9)
    rows = whole_number(written.strip(), 1, INT64_MAX)
    if ms is None or (at and rows is None):
        raise UsageError(
            f"expected a time such as 49ms, or 49ms@8 for 8 rows, got {text[:60]!r}",
            hint="a whole training step on one GPU, the mean of many",
            key="one_gpu_step",
        )
    return Anchor(ms=ms, rows=rows)


def check_anchors(anchors: Sequence[Anchor], workload: Workload) -> None:
    """Check that the rows of all anchors are known, and different.

    Raises:
        UsageError: they are not.

    """
    if workload.rows is None and any(anchor.rows is not None for anchor in anchors):
        raise UsageError(
            "expected a time without rows, since the rows of one GPU's batch are not known",
            hint="set {batch_size=}",
            key="one_gpu_step",
        )
    rows = [anchor.rows or workload.rows for anchor in anchors]
    if len(set(rows)) < len(rows):
        raise UsageError(
            f"expected different numbers of rows, got {', '.join(map(str, rows))}",
            key="one_gpu_step",
            hint="write the rows of both steps: --one-gpu-step 49ms@8 --one-gpu-step 30ms@4",
        )


def one_gpu_ms(anchors: Sequence[Anchor], workload: Workload, share: float, case: Case) -> float:
    """Return the milliseconds of one GPU for a share of its batch.

    Between two anchors the step is interpolated linearly. Beyond them it is in proportion to the rows, never
    shorter than what Python needs to launch it.
    """
    known = [(_share_of(anchor, workload), anchor.ms) for anchor in anchors]
    for (rows, ms), (next_rows, next_ms) in pairwise(known):
        if rows <= share <= next_rows:
            return ms + (next_ms - ms) * (share - rows) / (next_rows - rows)
    rows, ms = min(known, key=lambda anchor: abs(anchor[0] - share))
    floor = 0.0
    if share < rows and workload.launches is not None:
        floor = (workload.launches.forward + workload.launches.backward) * case.cost(OPERATOR_MS)
    return max(ms * share / rows, min(ms, floor))


def _share_of(anchor: Anchor, workload: Workload) -> float:
    return 1.0 if anchor.rows is None or workload.rows is None else anchor.rows / workload.rows
