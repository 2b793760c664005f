"""The comparison of N ranks with one process, as `exec --ranks N --check` reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dpdemo.results.devices import spans
from dpdemo.results.table import styled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.results.ranks import Mistake
    from dpdemo.results.table import Block


@dataclass(frozen=True)
class Comparison:
    """The answer: gradients are equal to a tolerance, differ for named reasons, or were not compared."""

    verdict: Literal["equal", "different", "not checked"]
    num_ranks: int
    reason: str = ""
    """Why nothing was compared, or the comparison is not sure."""
    steps: tuple[int, ...] = ()
    difference: float | None = None
    """The largest relative difference of a step's gradients."""
    tolerance: float | None = None
    mistakes: tuple[Mistake, ...] = ()
    remarks: tuple[str, ...] = ()

    def blocks(self) -> Iterator[Block]:
        """Yield a line for the answer, and two for each mistake."""
        yield styled(self.headline(), "bold")
        for mistake in self.mistakes:
            yield from mistake.blocks()
        for remark in self.remarks:
            yield styled(f"  Note: {remark}")

    def headline(self) -> str:
        """Return the answer in one line."""
        if self.verdict == "not checked":
            return f"Not checked against one process: {self.reason}"
        steps = ", ".join(spans(self.steps))
        which = f"the gradients of step{'s' * (len(self.steps) > 1)} {steps} on {self.num_ranks} ranks"
        apart = f"relative difference {self.difference:.1e}, tolerance {self.tolerance:.1e}"
        if self.verdict == "equal":
            return f"Equal to one process: {which} ({apart})"
        return f"Different from one process: {which} ({apart})"
