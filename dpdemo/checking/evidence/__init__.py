"""What the probes saw, as frozen and torch-free data: rules read nothing else.

A *probe* is one batch in one mode, run twice from the same state: on one virtual GPU (`single`) and under
genuine DataParallel on all of them (`parallel`).
"""

from dpdemo.checking.evidence.calls import (
    HOOKS_OF,
    Call,
    Event,
    Leaf,
    RaisedError,
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
    KeepingHook,
    Kind,
    Mode,
    Probe,
    Reduction,
    StateChange,
    Value,
    WriteStatement,
)
from dpdemo.checking.evidence.scan import Holding, Norm, Scan

__all__ = [
    "ABSENT", "COARSE", "HOOKS_OF", "UNEQUAL", "Cache", "Call", "Comparison", "Event", "Evidence", "Holding",
    "KeepingHook", "Kind", "Leaf", "LossGradients", "Mode", "Norm", "Probe", "RaisedError", "Reduction",
    "Replica", "Scan", "Single", "Stage", "StateChange", "Value", "WriteStatement", "first_line",
]  # fmt: skip
