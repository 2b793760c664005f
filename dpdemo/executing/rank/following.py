"""Observe this process if it is, or becomes, a rank of a program that dpdemo launched."""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import TYPE_CHECKING

from dpdemo.running.ranks import NOTES

if TYPE_CHECKING:
    from dpdemo.virtual import VirtualGpus


def follow(gpus: VirtualGpus, *, is_launched: bool) -> None:
    """Note this process's collectives, waits and errors, if somebody reads them.

    Where a launcher of ranks started this process, the launcher prints its traceback and outlives it.
    """
    folder = os.environ.get(NOTES)
    if folder is None or not Path(folder).is_dir():
        return
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        return
    from dpdemo.executing.rank import blocked, collectives, errors
    from dpdemo.executing.rank.notes import Notes
    from dpdemo.virtual.ops.collectives import listeners

    notes = Notes(Path(folder))
    collectives.watch(notes, listeners)
    blocked.watch(notes, lambda: 0, is_launched=is_launched)
    errors.watch(notes, lambda _: [], is_launched=is_launched)

    def end() -> None:
        if os.getpid() == notes.process:
            indices = range(len(gpus.visible)) if gpus.is_started else ()
            peaks = {f"cuda:{index}": gpus.peak_bytes(index) for index in indices}
            notes.write("end", peak_bytes={device: peak for device, peak in peaks.items() if peak})

    atexit.register(end)
