"""`dpdemo check`: what DataParallel will do to a model, found out without real GPUs.

evidence/     what the probes saw: torch-free data, and all that rules read
recorder.py   DataParallel's calls step by step, also for a user's own script
probes.py     one batch on one device and under DataParallel
probing.py    which batches of the plan are run, and what is known without; modes.py: in which mode
scan.py       what the model is made of
registry.py   the rules, in rules/: a function each, its docstring is its page
engine.py     probes once, then every rule
"""

from typing import TYPE_CHECKING

from dpdemo.reports.check import CheckReport, Finding

if TYPE_CHECKING:
    from dpdemo.checking.engine import check

__all__ = ["CheckReport", "Finding", "check"]


def __getattr__(name: str) -> object:
    if name != "check":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dpdemo.checking.engine import check  # torch is imported when something is checked, not for --list

    return check
