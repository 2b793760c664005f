"""See, run and check how PyTorch splits a batch over GPUs, on any machine, with or without GPUs.

`import dpdemo` imports no torch: each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpdemo.checking.engine import check as check
    from dpdemo.checking.testing import assert_no_pitfalls as assert_no_pitfalls
    from dpdemo.config.fields import Config as Config
    from dpdemo.config.load import load_config as load_config
    from dpdemo.epochs import run as run
    from dpdemo.epochs.interrupts import RunInterrupted as RunInterrupted
    from dpdemo.errors import DpdemoError as DpdemoError
    from dpdemo.errors import RunError as RunError
    from dpdemo.errors import UsageError as UsageError
    from dpdemo.explaining.walkthrough import explain as explain
    from dpdemo.memory import largest_batch as largest_batch
    from dpdemo.memory import predict_memory as predict_memory
    from dpdemo.results.check import CheckReport as CheckReport
    from dpdemo.results.explanation import Explanation as Explanation
    from dpdemo.results.memory import MemoryReport as MemoryReport
    from dpdemo.results.memorydata import Training as Training
    from dpdemo.results.split import SplitReport as SplitReport
    from dpdemo.splitting.predict import simulate as simulate
    from dpdemo.virtual import virtual_gpus as virtual_gpus

__version__ = "0.1.0"

_HOMES = {
    "CheckReport": "dpdemo.results.check",
    "Config": "dpdemo.config.fields",
    "DpdemoError": "dpdemo.errors",
    "Explanation": "dpdemo.results.explanation",
    "MemoryReport": "dpdemo.results.memory",
    "RunError": "dpdemo.errors",
    "RunInterrupted": "dpdemo.epochs.interrupts",
    "SplitReport": "dpdemo.results.split",
    "Training": "dpdemo.results.memorydata",
    "UsageError": "dpdemo.errors",
    "assert_no_pitfalls": "dpdemo.checking.testing",
    "check": "dpdemo.checking.engine",
    "explain": "dpdemo.explaining.walkthrough",
    "largest_batch": "dpdemo.memory",
    "load_config": "dpdemo.config.load",
    "predict_memory": "dpdemo.memory",
    "run": "dpdemo.epochs",
    "simulate": "dpdemo.splitting.predict",
    "virtual_gpus": "dpdemo.virtual",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dpdemo' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # the next look-up finds it without coming here
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
