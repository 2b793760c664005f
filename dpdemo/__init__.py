"""See, run and check how PyTorch splits a batch over GPUs, on any machine, with or without GPUs.

`import dpdemo` imports no torch: each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpdemo.config import Config, load_config
    from dpdemo.errors import DpdemoError, RunError, RunInterrupted, UsageError
    from dpdemo.explanation import Explanation
    from dpdemo.footprint import largest_batch, predict_memory
    from dpdemo.memoryreport import MemoryReport, Training
    from dpdemo.prediction import simulate
    from dpdemo.preflight.engine import check
    from dpdemo.preflight.findings import CheckReport
    from dpdemo.preflight.testing import assert_no_pitfalls
    from dpdemo.recorder import record
    from dpdemo.recording import Recording, load_recording
    from dpdemo.replayer import replay
    from dpdemo.report import SplitReport
    from dpdemo.runner import run
    from dpdemo.verdict import Replay
    from dpdemo.virtual import virtual_gpus
    from dpdemo.walkthrough import explain

__version__ = "0.1.0"

_HOMES = {
    "CheckReport": "dpdemo.preflight.findings",
    "Config": "dpdemo.config",
    "DpdemoError": "dpdemo.errors",
    "Explanation": "dpdemo.explanation",
    "MemoryReport": "dpdemo.memoryreport",
    "Recording": "dpdemo.recording",
    "Replay": "dpdemo.verdict",
    "RunError": "dpdemo.errors",
    "RunInterrupted": "dpdemo.errors",
    "SplitReport": "dpdemo.report",
    "Training": "dpdemo.memoryreport",
    "UsageError": "dpdemo.errors",
    "assert_no_pitfalls": "dpdemo.preflight.testing",
    "check": "dpdemo.preflight.engine",
    "explain": "dpdemo.walkthrough",
    "largest_batch": "dpdemo.footprint",
    "load_config": "dpdemo.config",
    "load_recording": "dpdemo.recording",
    "predict_memory": "dpdemo.footprint",
    "record": "dpdemo.recorder",
    "replay": "dpdemo.replayer",
    "run": "dpdemo.runner",
    "simulate": "dpdemo.prediction",
    "virtual_gpus": "dpdemo.virtual",
}

__all__ = [
    "CheckReport",
    "Config",
    "DpdemoError",
    "Explanation",
    "MemoryReport",
    "Recording",
    "Replay",
    "RunError",
    "RunInterrupted",
    "SplitReport",
    "Training",
    "UsageError",
    "assert_no_pitfalls",
    "check",
    "explain",
    "largest_batch",
    "load_config",
    "load_recording",
    "predict_memory",
    "record",
    "replay",
    "run",
    "simulate",
    "virtual_gpus",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dpdemo' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # the next look-up finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
