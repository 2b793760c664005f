"""Note the error that ends a rank, and leave its traceback to the launcher, who prints each error once."""

from __future__ import annotations

import re
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from dpdemo.executing.rank.notes import NOWHERE, short
from dpdemo.models.frames import is_installed, users_frames, without_watchers

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from dpdemo.executing.rank.notes import Notes

_LOST = re.compile(
    r"Connection (closed|reset|refused|was)|(recvValue|sendBytes) failed|Broken pipe|[Ff]ailed to recv"
    r"|(Read|Write) error|Timed out waiting|[Ww]ait timeout|gloo/transport|Socket (Timeout|closed)"
)
_MAX_TEXT = 400
_HINTS = {
    "No backend type associated with device type cpu": "NCCL takes no tensors of the host: use .cuda().",
    "invalid device ordinal": "The rank does not see that GPU: use LOCAL_RANK, or --gpus M for more.",
    "No such file or directory": "If another rank writes it: dist.barrier() between writing and reading.",
}
"""By words of an error, what to do."""


def is_lost(error: BaseException) -> bool:
    """Return whether an error only tells that the connection to another rank broke."""
    return isinstance(error, RuntimeError) and bool(_LOST.search(str(error)))


def watch(notes: Notes, hints: Callable[[BaseException], list[str]], *, is_launched: bool) -> None:
    """Note an exception that nobody catches."""
    before = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        own = [frame for frame in users_frames(trace) if not is_installed(frame.filename)] or users_frames(
            trace
        )
        values: dict[str, Any] = {
            "text": first_lines(kind, error),
            "at": f"{short(own[-1].filename)}:{own[-1].lineno}" if own else NOWHERE,
            "is_lost": is_lost(error),
            "hints": [*hints(error), *(hint for words, hint in _HINTS.items() if words in str(error))],
            "t": time.time(),
        }
        if is_launched and not issubclass(kind, KeyboardInterrupt):
            text = without_watchers("".join(traceback.format_exception(kind, error, trace)))
            values["traceback"] = text
        if not notes.write("error", **values) or "traceback" not in values:
            before(kind, error, trace)

    sys.excepthook = excepthook


def first_lines(kind: type[BaseException], error: BaseException) -> str:
    """Return an error's type and the beginning of its text, in one line."""
    text = " ".join(str(error).partition("CUDA kernel errors might be")[0].split())
    return f"{kind.__name__}: {text[:_MAX_TEXT]}{'…' * (len(text) > _MAX_TEXT)}"
