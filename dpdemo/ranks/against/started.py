"""The run on one GPU of a program that starts its ranks itself, with `mp.spawn` or another launcher."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpdemo.ranks.gathering import RankFolder
from dpdemo.ranks.launch import Rank, stop
from dpdemo.ranks.log import FOLDER, NOTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpdemo.ranks.log import RankLog

_POLL_S = 0.05


class NotComparedError(Exception):
    """The run on one process does not give what is to be compared, and the reason."""


@dataclass(frozen=True)
class Alone:
    """The rank that the program started on one GPU, and then its other processes."""

    ranks: Sequence[RankLog]

    @property
    def code(self) -> int:
        """1 if the rank failed."""
        return int(self.ranks[0].error is not None)


def run_alone(
    command: Sequence[str], environment: Mapping[str, str], folder: str, on_look: Callable[[], None]
) -> Alone:
    """Run a program in a folder until the rank that it starts has ended.

    Raises:
        NotComparedError: the program starts no rank on one GPU, or several.

    """
    nothing = subprocess.DEVNULL
    prefix = f"{FOLDER}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as notes:
        found = RankFolder(Path(notes), is_reporter=False)
        process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - the user's
            command,
            env={**environment, NOTES: notes},
            cwd=folder,
            process_group=0,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
        )
        try:
            while process.poll() is None and not _is_over(found):
                time.sleep(_POLL_S)
                on_look()
                found.read()
        except KeyboardInterrupt:
            raise NotComparedError("the run on one process was interrupted") from None
        finally:
            stop([Rank(0, Path(notes), process)])
        found.read()
    logs = sorted(found.logs.values(), key=lambda log: log.world is None)
    size = max((log.world[1] for log in logs if log.world is not None), default=0)
    if size != 1:
        many = f"{size} ranks, too" if size else "no rank"
        other = "what torchrun can start, `dpdemo exec --ranks N --check` can compare"
        raise NotComparedError(f"on one GPU the program starts {many}; {other}")
    return Alone(logs)


def _is_over(found: RankFolder) -> bool:
    """Return whether the rank has ended, or is one of several."""
    joined = [(log.world[1], log.code) for log in found.logs.values() if log.world is not None]
    return any(size > 1 or code is not None for size, code in joined)
