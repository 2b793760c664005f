"""What a rank notes for the launcher: each collective before it begins, and its GPUs' peaks at the end."""

from __future__ import annotations

import atexit
import inspect
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpdemo.models.frames import is_users
from dpdemo.running.ranks import NOTES
from dpdemo.virtual.ops.collectives import listeners

if TYPE_CHECKING:
    from torch import Tensor

    from dpdemo.virtual import VirtualGpus

_MAX_SHAPES = 8


class RankNotes:
    """Appends a line to this rank's file for each collective."""

    def __init__(self, folder: Path, rank: str) -> None:
        self.path = folder / f"{rank}.jsonl"
        self.file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.process = os.getpid()
        self.counts: dict[str, int] = {}
        self.lock = threading.Lock()

    def note(self, name: str, group: Any, tensors: list[Tensor]) -> None:
        """Write down one collective; a full disk ends the notes, not the program."""
        if os.getpid() != self.process or self.file < 0:
            return
        with self.lock:
            number = self.counts[group.group_name] = self.counts.get(group.group_name, 0) + 1
            line = {
                "n": number,
                "op": name,
                "shapes": [] if name == "barrier" else [list(one.shape) for one in tensors[:_MAX_SHAPES]],
                "bytes": 0 if name == "barrier" else sum(one.numel() * one.element_size() for one in tensors),
                "group": group.group_name,
                "at": users_line(),
            }
            try:
                os.write(self.file, json.dumps(line).encode() + b"\n")
            except OSError:
                self.file = -1

    def end(self, gpus: VirtualGpus) -> None:
        """Write down what each GPU held at its peak."""
        if os.getpid() == self.process and gpus.is_started:
            peaks = {str(index): gpus.peak_bytes(index) for index in range(len(gpus.visible))}
            held = {f"cuda:{index}": peak for index, peak in peaks.items() if peak}
            self.path.with_suffix(".json").write_text(json.dumps({"peak_bytes": held}), "utf-8")


def users_line() -> str:
    """Return the line of the program that is under way, as `file:line`."""
    frame = inspect.currentframe()
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return "a thread of PyTorch's own"


def follow(gpus: VirtualGpus) -> None:
    """Note this process's collectives, if it is a rank that a launcher watches."""
    folder, rank = os.environ.get(NOTES), os.environ.get("RANK")
    if folder is None or rank is None or not Path(folder).is_dir():
        return
    notes = RankNotes(Path(folder), rank)
    listeners.append(notes.note)
    atexit.register(notes.end, gpus)
