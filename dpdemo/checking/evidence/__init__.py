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
from dpdemo.checking.evidence.comparison import COARSE, UNEQUAL, Comparison, LossGradients
from dpdemo.checking.evidence.probes import (
    ABSENT,
    Cache,
    Evidence,
    Kept,
    Kind,
    Mode,
    Probe,
    Reduction,
    StateChange,
    Value,
    Written,
)
from dpdemo.checking.evidence.scan import Held, Norm, Scan

__all__ = [
    "ABSENT", "COARSE", "HOOKS_OF", "UNEQUAL", "Cache", "Call", "Comparison", "Event", "Evidence", "Held",
    "Kept", "Kind", "Leaf", "LossGradients", "Mode", "Norm", "Probe", "Raised", "Reduction", "Replica",
    "Scan", "Single", "Stage", "StateChange", "Value", "Written", "first_line",
]  # fmt: skip
