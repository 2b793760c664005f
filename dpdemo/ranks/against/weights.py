"""How much each rank's backward passes weigh in a step, and should: means over different numbers of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dpdemo.ranks.against.compare import Step, Vector, close, size, together, vector
from dpdemo.ranks.against.unsynced import FIT
from dpdemo.ranks.against.words import NEAR, line_of, near, percent
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOSS = 1e-4
_CLEAR = 0.2
"""The share of a difference that an explanation may leave."""
_MANY = 16
_UNEVEN = "The ranks' means are averaged although they are over different numbers of elements"
_LIKE_ONE = "let the program treat the loss of each rank as one process treats that of all rows"
EVEN = "divide the rank's sum by all ranks' number of elements, and multiply by the number of ranks"


@dataclass(frozen=True)
class Weights:
    """How much each rank's backward pass weighs in the step, and should as in one process."""

    owners: tuple[tuple[int, int], ...]
    does: Vector
    should: Vector
    does_fit: bool
    should_fit: bool
    precision: float
    is_clear: bool
    """Whether the weights leave little of the difference between both gradients."""

    @classmethod
    def of(cls, step: Step) -> Weights | None:
        """Find the weights by least squares on the gradients before they are averaged, or None."""
        usable = [
            place for place, name in enumerate(step.names) if name in {each.name for each in step.plain}
        ]
        columns, owners = [], []
        for rank, side in enumerate(step.data):
            for number, noted in enumerate(side.detail.backward):
                parts = [noted.gradients[place] if place < len(noted.gradients) else None for place in usable]
                found = [part for part in parts if part is not None]
                if usable and len(found) == len(parts):
                    columns.append(together(vector(part) for part in found))
                    owners.append((rank, number))
        if len(columns) < len(step.data) or len({rank for rank, _ in owners}) < len(step.data):
            return None
        by_name = {each.name: each for each in step.plain}
        chosen = [by_name[step.names[place]] for place in usable]
        matrix = torch.stack(columns, 1)
        targets = [together(each.ranks for each in chosen), together(each.one for each in chosen)]
        if len({len(matrix), *map(len, targets)}) > 1:
            return None
        if len(matrix) < _MANY * len(columns) and not step.has_same_rows():
            return None  # so few numbers prove nothing
        solved = [
            torch.linalg.lstsq(matrix, target[:, None], rcond=1e-9, driver="gelsd").solution[:, 0]
            for target in targets
        ]
        fits = [
            close(matrix @ fit, target, max(FIT, step.tolerance()))
            for fit, target in zip(solved, targets, strict=True)
        ]
        precision = 2 * FIT if step.dtype == "float32" else NEAR
        left = max(size(matrix @ fit - target) for fit, target in zip(solved, targets, strict=True))
        is_clear = left <= _CLEAR * size(targets[0] - targets[1])
        return cls(tuple(owners), solved[0], solved[1], fits[0], fits[1], precision, is_clear)

    def explains(self) -> bool:
        """Return whether both gradients are sums of the ranks' passes, with other and sound weights."""
        largest = float(self.should.abs().max())
        is_wild = float(self.does.min()) < -NEAR * float(self.does.abs().max())
        is_wild |= float(self.should.min()) < NEAR * largest  # as if one process had no rows of a rank
        is_same = bool(((self.does - self.should).abs() <= self.precision * largest).all())
        return self.does_fit and self.should_fit and self.is_clear and not is_wild and not is_same

    def has_one_factor(self) -> bool:
        """Return whether all passes weigh the same times of what they should."""
        ratios = self.does / self.should
        return float(ratios.max() - ratios.min()) <= 2 * NEAR * float(ratios.max())

    def words(self) -> str:
        """Write the weights of the first passes."""
        has_many = len({number for _, number in self.owners}) > 1
        pairs = zip(self.owners, self.does.tolist(), self.should.tolist(), strict=True)
        return "; ".join(
            f"rank {rank}{f' pass {number + 1}' if has_many else ''} weighs {percent(does)}, "
            f"in one process {percent(should)}"
            for (rank, number), does, should in list(pairs)[:4]
        )


def find_weights(step: Step) -> Iterator[Mistake]:
    """Find ranks whose passes weigh otherwise than in one process, as means over unequal numbers do."""
    fit = Weights.of(step)
    if fit is None or not (fit.explains() or has_uneven_means(step)):
        return
    is_even = float(fit.does.max() - fit.does.min()) < NEAR * float(fit.does.abs().max())
    counts = uneven_counts(step)
    if not counts and float((fit.does - fit.should).abs().max()) <= NEAR * float(fit.should.abs().max()):
        return  # numbers of the program's own, such as a teacher, may differ as much
    equal = (
        _UNEVEN
        if counts
        else "The ranks' gradients are averaged with equal weights, which one process has not"
    )
    what = equal if is_even else "The ranks' passes do not weigh what they weigh in one process"
    over = f" ({counts})" if counts else ""
    has_tail = len({side.event.rows for side in step.data}) > 1
    advice = EVEN if counts else _LIKE_ONE
    yield Mistake(
        f"{what}{over}: {fit.words()}",
        line_of(step),
        f"{advice}{', or drop the last, smaller batch (drop_last=True)' if has_tail else ''}",
    )


def find_clipped_before(step: Step) -> Iterator[Mistake]:
    """Find gradients that each rank clipped by its own norm, before they were averaged."""
    clips = [side.detail.clips for side in step.data]
    for place in range(min(map(len, clips))):
        norms = [each[place].norm for each in clips]
        fit = Weights.of(step)
        if max(norms) - min(norms) <= 1e-3 * max(norms) or fit is None or not fit.explains():
            continue
        single = step.one.detail.clips
        one = f"; {percent(single[place].norm)} on one process" if place < len(single) else ""
        yield Mistake(
            f"Gradients are clipped before they are averaged: their norms are "
            f"{', '.join(map(percent, norms[:8]))} on the ranks{one}",
            clips[0][place].at,
            "clip after the last backward pass of the step, outside of no_sync(), or after all_reduce",
        )
        return


def uneven_counts(step: Step) -> str:
    """Name the numbers of elements that the ranks' losses average over, where they differ."""
    for passes in zip(*(side.detail.backward for side in step.data), strict=False):
        if len({len(each.elements) for each in passes}) != 1:
            continue
        for values in zip(*(each.elements for each in passes), strict=True):
            if max(values) > 1.0 and max(values) > 1.001 * min(values):
                return f"{' and '.join(map(percent, values))}"
    return ""


def has_uneven_means(step: Step) -> bool:
    """Return whether means weigh otherwise than in one process, where rounding may hide it in gradients."""
    counts = _elements(step)
    if step.dtype == "float32" or not counts:
        return False
    fit = Weights.of(step)
    if fit is None:
        return any(find_uneven_shards(step))
    expected = torch.tensor(counts, dtype=torch.float64, device="cpu") / sum(counts)
    apart, left = (float((each - expected).abs().max()) for each in (fit.does, fit.should))
    return fit.does_fit and fit.should_fit and left <= _CLEAR * apart and apart > FIT


def _elements(step: Step) -> list[float]:
    """Return over how many elements each rank averages, where each has one pass and mean, and they differ."""
    passes = [side.detail.backward for side in step.data]
    is_single = {len(each) for each in (*passes, step.one.detail.backward)} == {1}
    if not uneven_counts(step) or not is_single or any(len(mine.elements) != 1 for (mine,) in passes):
        return []
    return [mine.elements[0] for (mine,) in passes]


def find_uneven_shards(step: Step) -> Iterator[Mistake]:
    """Find means over unequal numbers of elements by the losses, as where ranks have shards of gradients."""
    counts, is_precise = _elements(step), step.dtype == "float32"
    if not counts or (step.plain and is_precise):
        return
    losses = [side.detail.backward[0].loss for side in step.data]
    one, even = step.one.detail.backward[0].loss, sum(losses) / len(losses)
    whole = sum(loss * number for loss, number in zip(losses, counts, strict=True)) / sum(counts)
    if near(one, whole, _LOSS) if is_precise else abs(one - whole) <= _CLEAR * abs(one - even):
        yield Mistake(
            f"{_UNEVEN} ({uneven_counts(step)})",
            line_of(step),
            EVEN,
        )
