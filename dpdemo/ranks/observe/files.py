"""Observe which files a rank writes from the beginning."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from dpdemo.ranks.events import FileWritten
from dpdemo.ranks.observe.notes import NOWHERE, around, never_raises, users_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.ranks.observe.notes import Notes

_NOT_RESULTS = ("/dev/", "/proc/", "/sys/", "/.cache/", "__pycache__", "torchinductor", "/.triton/")


def watch(notes: Notes, collectives: Callable[[], int]) -> None:
    """Note the files that this process opens for writing, and what `torch.save` writes in C++.

    Each is noted once for each number of collectives made before.
    """
    seen: set[tuple[str, int]] = set()

    @never_raises
    def wrote(name: Any) -> None:
        if not isinstance(name, (str, os.PathLike)) or os.getpid() != notes.process:
            return
        path = os.path.abspath(os.fspath(name))  # noqa: PTH100 - text
        hidden = path.endswith((".lock", ".pyc")) or any(part in path for part in _NOT_RESULTS)
        key = path, collectives()
        if hidden or key in seen or not dist.is_initialized():
            return
        seen.add(key)
        at = users_line()
        if at != NOWHERE:
            notes.write(FileWritten(path, key[1], at))

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            truncates = mode[:1] in {"w", "x"} if isinstance(mode, str) else bool((flags or 0) & os.O_TRUNC)
            if truncates:
                wrote(path)

    sys.addaudithook(audit)

    @around(torch.serialization, "save")
    def saved(save: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        wrote(f)
        save(obj, f, *args, **kwargs)

    torch.save = saved
