"""`dpdemo check`: what DataParallel will do to a model, found out without real GPUs.

running/      fresh copies of a model: on one GPU, under DataParallel, chunk by chunk
recording/    what each step of a call was given and gave, and what replicas did
observing/    what two runs differ in, and why, by running again; what the model is made of
source.py     the only reader of the user's code
evidence/     what was seen: torch-free values, and all that rules read
errors.py     PyTorch's messages, and the rules that they belong to
questions/    questions that several rules ask of the evidence
rules/        a function each: evidence -> findings; its docstring is its page (registry.py)
precedence.py the findings that no other one explains
repairs.py    the user's own line, and what to write in its place; or an example (fills.py)
engine.py     probes once, then every rule
"""

from typing import TYPE_CHECKING

from dpdemo.results.check import CheckReport
from dpdemo.results.findings import Finding

if TYPE_CHECKING:
    from dpdemo.checking.engine import check

__all__ = ["CheckReport", "Finding", "check"]


def __getattr__(name: str) -> object:
    if name != "check":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dpdemo.checking.engine import check  # torch is imported when something is checked, not for --list

    return check
