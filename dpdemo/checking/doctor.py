"""Explaining an error that a DataParallel run raised, from its text alone: `dpdemo check --traceback`.

Each rule's messages are those that its triggers provoke on virtual GPUs; a test compares every pattern here
with them. What a message leaves open, such as which attribute it was, is in the user's own line.
"""

import re
import traceback
from dataclasses import replace

from dpdemo.checking.errors import find
from dpdemo.checking.evidence import RaisedError
from dpdemo.checking.registry import rule_of
from dpdemo.checking.rules.wrapper import wrapper_error
from dpdemo.checking.source import line_of
from dpdemo.errors import UsageError
from dpdemo.models.frames import is_users
from dpdemo.models.messages import Known, find_known
from dpdemo.results.check import CheckReport
from dpdemo.results.findings import Finding, Place

_CAUGHT = re.compile(r"Caught (?P<type>[\w.]+) in replica (?P<replica>\d+) on device (?P<device>[\w:]+)\.")
_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)(?:\n +(?P<code>\S.*))?'
)
_LAST = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Iteration|Warning)): ?(?P<message>.*)$", re.MULTILINE
)


def diagnose(text: str) -> CheckReport:
    """Find the rule that explains an error of a DataParallel run.

    Args:
        text: the traceback as Python printed it, or at least its last lines.

    Raises:
        UsageError: if there is no exception in it.

    """
    caught = list(_CAUGHT.finditer(text))
    inner = text[caught[-1].end() :] if caught else text
    ends = list(_LAST.finditer(inner)) or list(_LAST.finditer(text))
    if not ends and (known := find_known(text)):  # what a log says, without an exception
        return _explained(known.words_in(text), known)
    if not ends and "StopIteration" not in text:
        raise UsageError(
            "expected the traceback of an exception, got a text without one",
            key="traceback",
            hint="paste all lines from `Traceback (most recent call last)` on",
        )
    message = f"{ends[-1]['type']}: {inner[ends[-1].start('message') :].strip()}" if ends else "StopIteration"
    frames = list(_FRAME.finditer(text))
    place = _users_place(frames)
    functions = " ".join(frame["function"] for frame in frames)
    code = "DP106" if len(caught) > 1 else find(message, place.code if place else "", functions)
    where = f" in replica {caught[-1]['replica']} on {caught[-1]['device']}" if caught else ""
    first = message.splitlines()[0][:300]
    if not code and (known := find_known(message)):
        return _explained(first, known)
    if not code and not caught:
        note = f"{first}: no rule knows this message, nor does it say that DataParallel has a part in it"
        return CheckReport("(traceback)", 0, (), notes=(note,))
    code = code or "DP390"
    rule = rule_of(code)
    if code == "DP101":
        kind, _, told = first.partition(": ")
        error = RaisedError("wrapper", kind, told, places=(place,) if place else ())
        return CheckReport("(traceback)", 0, (rule.finding(wrapper_error(error)),))
    return CheckReport("(traceback)", 0, (Finding(rule, "error", code, f"{first}{where}", place),))


def _explained(message: str, known: Known) -> CheckReport:
    return CheckReport("(traceback)", 0, (), notes=(f"{message}: {known.means}", f"what to do: {known.todo}"))


def end_of_program(error: BaseException, *, has_called: bool) -> tuple[Finding, ...]:
    """Find the rule that explains the exception that ended a program, if DataParallel has a part in it.

    Args:
        error: the exception.
        has_called: whether the program has called a DataParallel: then a number may be one for each GPU.

    """
    text = "".join(traceback.format_exception(error))
    try:
        found = diagnose(text).findings
    except UsageError:  # it has no text
        return ()
    is_dataparallels = "Caught " in text or "torch/nn/parallel/" in text
    ours = {"DP101", "DP102", *(("DP401",) if has_called else ())}
    return tuple(finding for finding in found if is_dataparallels or finding.code in ours)


def _users_place(frames: list[re.Match[str]]) -> Place | None:
    """Find the innermost line of the user's own, which may be in a file of another machine."""
    for frame in reversed(frames):
        file = frame["file"]
        if (
            is_users(file)
            and "site-packages/torch/" not in file
            and not re.search(r"/lib/python3[^/]*/\w+\.py", file)
        ):
            known = line_of(file, int(frame["line"]), frame["function"])
            return replace(known, code=frame["code"] or known.code)
    return None
