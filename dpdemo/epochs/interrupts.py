"""Ctrl-C while something runs: each exception carries what was done before it.

KeyboardInterrupt
├── EpochInterrupted   in the loop over one process's batches
└── RunInterrupted     what `dpdemo.run` raises: the report so far (exit code 130)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a launcher of ranks needs no torch
    from dpdemo.results.batches import BatchGroup
    from dpdemo.results.split import SplitReport


class EpochInterrupted(KeyboardInterrupt):
    """Ctrl-C within an epoch; `batches` are those done before it."""

    def __init__(self, batches: tuple[BatchGroup, ...]) -> None:
        super().__init__()
        self.batches = batches


class RunInterrupted(KeyboardInterrupt):
    """Raised by Ctrl-C during a run; `report` holds the batches done before it, marked as partial."""

    def __init__(self, report: SplitReport) -> None:
        super().__init__()
        self.report = report
