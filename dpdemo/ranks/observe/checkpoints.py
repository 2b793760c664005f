"""Observe what `torch.distributed.checkpoint` saves of values that are not sharded."""

import pickle
import zlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from dpdemo.ranks.events import Checkpoint
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line
from dpdemo.ranks.observe.numbers import local, total

_MAX_KEYS = 4096


class CheckpointNotes:
    """Notes each save of this rank."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.numbers: Counter[str] = Counter()
        self.sums: dict[str, int] = {}

    @never_raises
    def planned(self, state: Mapping[str, Any]) -> None:
        """Take a checksum of each value that is not sharded, once the state is flat."""
        for key, each in list(state.items())[:_MAX_KEYS]:
            if isinstance(each, torch.Tensor):
                places = getattr(each, "placements", None)
                if places is None or all(place.is_replicate() for place in places):
                    self.sums[key] = total(local(each))
            elif not hasattr(each, "local_shards"):
                self.sums[key] = _checksum(each)

    @never_raises
    def saved(self, path: str) -> None:
        """Note a save."""
        at = users_line()
        self.numbers[at] += 1
        self.notes.write(Checkpoint(at, self.numbers[at], path, self.sums))


def _checksum(value: Any) -> int:
    try:
        return zlib.crc32(pickle.dumps(value))
    except Exception:  # noqa: BLE001 - it has no form that two ranks could compare
        return 0


def _path(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    writer = kwargs.get("storage_writer", args[1] if len(args) > 1 else None)
    return str(getattr(writer, "path", ""))


def watch(notes: Notes) -> None:
    """Look at the checkpoints of this process."""
    found = CheckpointNotes(notes)

    def follow(module: Any) -> None:
        # `save` itself may be imported by name before
        @notes.around(module, "_save_state_dict", why="a checkpoint is saved")
        def save(run: Any, *args: Any, **kwargs: Any) -> Any:
            found.sums = {}
            result = run(*args, **kwargs)
            found.saved(_path(args, kwargs))
            return result

    def plan(module: Any) -> None:
        @notes.around(module.DefaultSavePlanner, "create_local_plan", why="its state is flat by then")
        def create(run: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            found.planned(self.state_dict)
            return run(self, *args, **kwargs)

    notes.when_imported("torch.distributed.checkpoint.state_dict_saver", follow)
    notes.when_imported("torch.distributed.checkpoint.default_planner", plan)
