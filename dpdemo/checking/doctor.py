"""Explaining an error that a DataParallel run raised, from its text alone: `dpdemo check --traceback`.

Each rule's messages are those that its triggers provoke on virtual GPUs; a test compares every pattern here
with them. What a message leaves open, such as which attribute it was, is in the user's own line.
"""

import linecache
import re
from dataclasses import dataclass

from dpdemo.checking.registry import rule_of
from dpdemo.checking.unregistered import NOTHING_THERE
from dpdemo.errors import UsageError
from dpdemo.models.frames import is_users
from dpdemo.reports.check import CheckReport, Finding, Place

_CAUGHT = re.compile(r"Caught (?P<type>[\w.]+) in replica (?P<replica>\d+) on device (?P<device>[\w:]+)\.")
_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)(?:\n +(?P<code>\S.*))?'
)
_LAST = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Iteration|Warning)): ?(?P<message>.*)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a rule's error looks like: its message, and perhaps the user's line or the step that raised it."""

    code: str
    message: str
    line: str = ""
    step: str = ""


_MADE_HERE = r"\btorch\.(arange|empty|eye|full|linspace|ones|rand|randint|randn|randperm|tensor|zeros)\("

PATTERNS = (
    Pattern("DP106", r"Caught .*Caught "),
    Pattern("DP101", r"'DataParallel' object has no attribute"),
    Pattern("DP102", r"Missing key\(s\) in state_dict.*module\.|Unexpected key\(s\) in state_dict.*module\."),
    Pattern("DP103", r"module must have its parameters and buffers on device"),
    Pattern("DP104", r"Invalid device id"),
    Pattern("DP104", r"list index out of range", step="__init__"),
    Pattern("DP107", r"python modules are children of ScriptModule"),
    Pattern("DP108", r"Modules with uninitialized parameters|uninitialized parameter"),
    Pattern("DP109", r"__new__\(\) missing \d+ required"),
    Pattern("DP209", r"__init__\(\) missing \d+ required positional argument"),
    Pattern("DP203", r"missing \d+ required positional argument"),
    Pattern("DP204", r"The number of modules \d+ is not equal to the number of kwargs_tup"),
    Pattern("DP206", r"chunk expects at least a 1-dimensional tensor"),
    Pattern("DP206", r"Dimension out of range", step="scatter"),
    Pattern("DP212", r"Expected hidden(\[\d\])? size|For batched .* hx should"),
    Pattern("DP214", r"batch_sizes should always be on CPU"),
    Pattern("DP214", r"Input tensor at index \d+ has invalid shape", line=r"pad_packed_sequence"),
    Pattern("DP215", r"should be a 1D CPU int64 tensor"),
    Pattern(
        "DP308", r"\AStopIteration|argument to .?grad\(\).? cannot be empty|grad requires non-empty inputs"
    ),
    Pattern("DP308", r"\AKeyError", line=r"state_dict\(\)"),
    Pattern("DP308", NOTHING_THERE, line=r"parameters\(\)"),
    Pattern("DP312", r"support the deepcopy protocol"),
    Pattern("DP311", r"NoneType", line=r"\.grad\b"),
    Pattern("DP313", r"change requires_grad flags of leaf"),
    Pattern("DP313", r"Output \d+ of Broadcast(Backward)? is a view .*inplace"),
    Pattern("DP314", r"'Tensor' object has no attribute"),
    Pattern("DP316", r"Expected more than 1 (value per channel|spatial element) when training"),
    Pattern("DP602", r"thread\._local' object has no attribute"),
    Pattern("DP304", r"object has no attribute '(weight|bias)'"),
    Pattern("DP391", r"same device.*\bcpu\b", line=_MADE_HERE),
    Pattern("DP304", r"same device", line=r"self\.\w*(layers?|blocks?|modules?|heads?)\w*\b"),
    Pattern("DP303", r"same device", line=r"cuda:\d|\.cuda\(\d|self\.device"),
    Pattern("DP302", r"same device", line=r"self\.\w+"),
    Pattern("DP391", r"same device"),
    Pattern("DP401", r"grad can be implicitly created only for scalar outputs|tensor has no dimensions"),
    Pattern("DP401", r"a Tensor with \d+ elements cannot be converted to Scalar"),
    Pattern("DP409", r"Dimension (specified as|out of range)"),
    Pattern("DP407", r"Gather function not implemented for CPU tensors"),
    Pattern("DP404", r"'NoneType' object has no attribute 'device'", step="gather"),
    Pattern("DP405", r"All dicts must have the same number of keys|have the same number of dimensions"),
    Pattern("DP405", r"'(list|tuple|dict)' object has no attribute 'device'", step="gather"),
    Pattern("DP405", r"KeyError", step="gather"),
    Pattern("DP408", r"zip\(\) argument \d+ is (shorter|longer)", step="gather"),
    Pattern("DP406", r"has invalid shape .*but expected|Gather got an input of invalid size"),
    Pattern("DP209", r"first argument must be callable or None"),
    Pattern(
        "DP402",
        r"object is not iterable|got '<map object|cannot create '\w+' instances|'map' object",
        step="gather",
    ),
    Pattern("DP402", r"object is not iterable", step="gather_map"),
    Pattern(
        "DP205",
        r"mat1 and mat2 shapes cannot be multiplied|must match the size of tensor|shape '\[.*\]' is invalid",
    ),
    Pattern("DP207", r"Expected input batch_size \(\d+\) to match target batch_size"),
    Pattern("DP490", r"", step="gather"),
)
"""The first one that fits is reported."""


def diagnose(text: str) -> CheckReport:
    """Say which rule an error of a DataParallel run is about.

    Args:
        text: the traceback as Python printed it, or at least its last lines.

    Raises:
        UsageError: if there is no exception in it.

    """
    caught = list(_CAUGHT.finditer(text))
    inner = text[caught[-1].end() :] if caught else text
    ends = list(_LAST.finditer(inner)) or list(_LAST.finditer(text))
    if not ends and "StopIteration" not in text:
        raise UsageError(
            "expected the traceback of an exception, got a text without one - at option `--traceback`",
            hint="paste all lines from `Traceback (most recent call last)` on",
        )
    message = f"{ends[-1]['type']}: {inner[ends[-1].start('message') :].strip()}" if ends else "StopIteration"
    frames = list(_FRAME.finditer(text))
    place = _users_place(frames)
    pattern = next((one for one in PATTERNS if _fits(one, message, place, frames, text)), None)
    where = f" in replica {caught[-1]['replica']} on {caught[-1]['device']}" if caught else ""
    first = message.splitlines()[0][:300]
    if pattern is None:
        if not caught:
            note = f"{first}: no rule knows this message, nor does it say that DataParallel has a part in it"
            return CheckReport("(traceback)", 0, (), notes=(note,))
        pattern = Pattern("DP390", "")
    rule = rule_of(pattern.code)
    what = f"{first}{where}"
    return CheckReport("(traceback)", 0, (Finding(rule, "error", pattern.code, what, place),))


def _fits(
    pattern: Pattern, message: str, place: Place | None, frames: list[re.Match[str]], text: str
) -> bool:
    if pattern.code == "DP106":
        return len(_CAUGHT.findall(text)) > 1
    if pattern.step and all(pattern.step not in frame["function"] for frame in frames):
        return False
    if pattern.line and (place is None or not re.search(pattern.line, place.code)):
        return False
    return re.search(pattern.message, message, re.DOTALL) is not None


def _users_place(frames: list[re.Match[str]]) -> Place | None:
    """Find the innermost line of the user's own, which may be in a file of another machine."""
    for frame in reversed(frames):
        file = frame["file"]
        if (
            is_users(file)
            and "site-packages/torch/" not in file
            and not re.search(r"/lib/python3[^/]*/\w+\.py", file)
        ):
            code = frame["code"] or linecache.getline(file, int(frame["line"])).strip()
            return Place(file, int(frame["line"]), frame["function"], code)
    return None
