"""See, run and check how PyTorch splits a batch over GPUs, on any machine, with or without GPUs.

`import dpdemo` imports no torch: each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpdemo.checking.engine import check
    from dpdemo.checking.testing import assert_no_pitfalls
    from dpdemo.config.fields import Config
    from dpdemo.config.load import load_config
    from dpdemo.errors import DpdemoError, RunError, UsageError
    from dpdemo.explaining.walkthrough import explain
    from dpdemo.memory import largest_batch, predict_memory
    from dpdemo.results.check import CheckReport
    from dpdemo.results.explanation import Explanation
    from dpdemo.results.memory import MemoryReport
    from dpdemo.results.memorydata import Training
    from dpdemo.results.split import SplitReport
    from dpdemo.results.sweep import SweepReport
    from dpdemo.results.weights import WeightsReport
    from dpdemo.running import run
    from dpdemo.running.interrupts import RunInterrupted
    from dpdemo.splitting.losses import LossParts, loss_parts, mean_over_ranks
    from dpdemo.splitting.predict import simulate
    from dpdemo.splitting.samples import sample_weights
    from dpdemo.splitting.weighted import WeightedDataParallel
    from dpdemo.sweeping.sweep import sweep
    from dpdemo.virtual import virtual_gpus

__version__ = "0.1.0"

_HOMES = {
    "CheckReport": "dpdemo.results.check",
    "Config": "dpdemo.config.fields",
    "DpdemoError": "dpdemo.errors",
    "Explanation": "dpdemo.results.explanation",
    "LossParts": "dpdemo.splitting.losses",
    "MemoryReport": "dpdemo.results.memory",
    "RunError": "dpdemo.errors",
    "RunInterrupted": "dpdemo.running.interrupts",
    "SplitReport": "dpdemo.results.split",
    "SweepReport": "dpdemo.results.sweep",
    "Training": "dpdemo.results.memorydata",
    "UsageError": "dpdemo.errors",
    "WeightedDataParallel": "dpdemo.splitting.weighted",
    "WeightsReport": "dpdemo.results.weights",
    "assert_no_pitfalls": "dpdemo.checking.testing",
    "check": "dpdemo.checking.engine",
    "explain": "dpdemo.explaining.walkthrough",
    "largest_batch": "dpdemo.memory",
    "load_config": "dpdemo.config.load",
    "loss_parts": "dpdemo.splitting.losses",
    "mean_over_ranks": "dpdemo.splitting.losses",
    "predict_memory": "dpdemo.memory",
    "run": "dpdemo.running",
    "sample_weights": "dpdemo.splitting.samples",
    "simulate": "dpdemo.splitting.predict",
    "sweep": "dpdemo.sweeping.sweep",
    "virtual_gpus": "dpdemo.virtual",
}

__all__ = [
    "CheckReport",
    "Config",
    "DpdemoError",
    "Explanation",
    "LossParts",
    "MemoryReport",
    "RunError",
    "RunInterrupted",
    "SplitReport",
    "SweepReport",
    "Training",
    "UsageError",
    "WeightedDataParallel",
    "WeightsReport",
    "assert_no_pitfalls",
    "check",
    "explain",
    "largest_batch",
    "load_config",
    "loss_parts",
    "mean_over_ranks",
    "predict_memory",
    "run",
    "sample_weights",
    "simulate",
    "sweep",
    "virtual_gpus",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dpdemo' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # the next look-up finds it without coming here
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
