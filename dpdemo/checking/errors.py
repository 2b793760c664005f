"""The messages of PyTorch by which rules, and the doctor of a traceback, know a pitfall: one table."""

import re
from typing import NamedTuple

from dpdemo.checking.evidence import RaisedError


class Pattern(NamedTuple):
    """The marks of an error: its message, and perhaps the user's line or the function that raised it."""

    code: str
    message: str
    line: str = ""
    step: str = ""


NOTHING_THERE = (
    r"^(KeyError|IndexError)|empty|at least one|not enough values|'(int|float)' object has no attribute|"
    r"must be Tensor, not (int|float)"
)
"""Messages of errors raised where a list is empty, or a sum is the number 0."""
_DEVICES = r"same device|Expected all tensors to be on"
_MADE_HERE = r"\btorch\.(arange|empty|eye|full|linspace|ones|rand|randint|randn|randperm|tensor|zeros)\("

PATTERNS = (
    Pattern("DP106", r"Caught .*Caught "),
    Pattern(
        "DP101",
        r"\A(AttributeError|TypeError): (?!DataParallel\.__init__).*\b\w*(?<!Distributed)DataParallel\b",
    ),
    Pattern("DP102", r"Missing key\(s\) in state_dict.*module\.|Unexpected key\(s\) in state_dict.*module\."),
    Pattern("DP103", r"module must have its parameters and buffers on device"),
    Pattern("DP104", r"Invalid device id"),
    Pattern("DP104", r"list index out of range", step="__init__"),
    Pattern("DP107", r"python modules are children of ScriptModule"),
    Pattern("DP107", r"Cannot insert a Tensor that requires grad as a constant"),
    Pattern("DP108", r"Modules with uninitialized parameters|uninitialized parameter"),
    Pattern("DP390", r"__new__\(\) missing \d+ required"),
    Pattern("DP402", r"__init__\(\) missing \d+ required positional argument", step="gather"),
    Pattern("DP208", r"__init__\(\) missing \d+ required positional argument"),
    Pattern("DP203", r"missing \d+ required positional argument"),
    Pattern("DP203", r"The number of modules \d+ is not equal to the number of kwargs_tup"),
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
    Pattern("DP602", r"_local' object has no attribute"),
    Pattern("DP304", r"object has no attribute '(weight|bias)'"),
    Pattern("DP304", r"KeyError: ([A-Z]\w*\(|Parameter containing|tensor\()"),
    Pattern("DP391", rf"({_DEVICES}).*\bcpu\b", line=_MADE_HERE),
    Pattern("DP304", _DEVICES, line=r"self\.\w*(layers?|blocks?|modules?|heads?)\w*\b"),
    Pattern("DP303", _DEVICES, line=r"cuda:\d|\.cuda\(\d|self\.device"),
    Pattern("DP302", _DEVICES, line=r"self\.\w+"),
    Pattern("DP391", _DEVICES),
    Pattern("DP401", r"grad can be implicitly created only for scalar outputs|tensor has no dimensions"),
    Pattern("DP401", r"a Tensor with \d+ elements cannot be converted to Scalar"),
    Pattern("DP409", r"Dimension (specified as|out of range)"),
    Pattern("DP407", r"Gather function not implemented for CPU tensors"),
    Pattern("DP405", r"'(NoneType|list|tuple|dict)' object has no attribute 'device'", step="gather"),
    Pattern("DP405", r"All dicts must have the same number of keys|have the same number of dimensions"),
    Pattern("DP405", r"KeyError", step="gather"),
    Pattern("DP408", r"zip\(\) argument \d+ is (shorter|longer)", step="gather"),
    Pattern("DP406", r"has invalid shape .*but expected|Gather got an input of invalid size"),
    Pattern("DP402", r"first argument must be callable or None", step="gather"),
    Pattern("DP208", r"first argument must be callable or None"),
    Pattern(
        "DP402",
        r"object is not iterable|got '<map object|cannot create '\w+' instances|'map' object",
        step="gather",
    ),
    Pattern(
        "DP205",
        r"mat1 and mat2 shapes cannot be multiplied|must match the size of tensor|"
        r"shape '\[.*\]' is invalid",
    ),
    Pattern("DP207", r"Expected input batch_size \(\d+\) to match target batch_size"),
    Pattern("DP590", r"", step="gather"),
)
"""The first one that fits is told."""


def find(message: str, line: str, functions: str) -> str:
    """Return the code of the rule that an error is about; "" where the table has none.

    Args:
        message: the type and text of the exception, as Python prints them.
        line: the user's innermost line that it went through.
        functions: the names of the functions of its traceback.

    """
    for pattern in PATTERNS:
        is_step = not pattern.step or re.search(rf"\b{pattern.step}", functions) is not None
        is_line = not pattern.line or re.search(pattern.line, line) is not None
        if is_step and is_line and re.search(pattern.message, message, re.DOTALL):
            return pattern.code
    return ""


def tells(code: str, error: RaisedError) -> bool:
    """Whether the message of an exception is one that a rule knows, wherever it was raised."""
    text = f"{error.type}: {error.message}"
    return any(
        pattern.code == code
        and not pattern.line
        and not pattern.step
        and re.search(pattern.message, text, re.DOTALL)
        for pattern in PATTERNS
    )


def is_of_devices(message: str) -> bool:
    """Whether an exception is about operands on two devices."""
    return re.search(_DEVICES, message) is not None
