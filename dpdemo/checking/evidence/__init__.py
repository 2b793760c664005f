"""What the probes saw, as frozen and torch-free data: rules read nothing else.

A *probe* is one batch in one mode, run twice from the same state: on one virtual GPU (`single`) and under
genuine DataParallel on all of them (`parallel`).
"""

from dpdemo.checking.evidence.calls import (
    HOOKS_OF,
    Call,
    Event,
    Leaf,
    Raised,
    Replica,
    Single,
    Stage,
    first_line,
)
from dpdemo.checking.evidence.comparison import UNEQUAL, Comparison, Counted, LossGradients, Mixing, OfThread
from dpdemo.checking.evidence.probes import Evidence, Kind, Mode, Probe, Reduction, StateChange
from dpdemo.checking.evidence.scan import MIXED, MOVED_ALONG, Entered, Held, Scan

__all__ = [
    "HOOKS_OF",
    "MIXED",
    "MOVED_ALONG",
    "UNEQUAL",
    "Call",
    "Comparison",
    "Counted",
    "Entered",
    "Event",
    "Evidence",
    "Held",
    "Kind",
    "Leaf",
    "LossGradients",
    "Mixing",
    "Mode",
    "OfThread",
    "Probe",
    "Raised",
    "Reduction",
    "Replica",
    "Scan",
    "Single",
    "Stage",
    "StateChange",
    "first_line",
]
