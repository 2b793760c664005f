"""Observe what `torch.distributed.checkpoint` saves of values that are not sharded."""

import pickle
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from dpdemo.ranks.events import Checkpoint
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line
from dpdemo.ranks.observe.numbers import local, total

_MAX_KEYS = 4096


def _sums(state: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield a checksum of each value that is not sharded, once the state is flat."""
    for key, each in list(state.items())[:_MAX_KEYS]:
        if isinstance(each, torch.Tensor):
            places = getattr(each, "placements", None)
            if places is None or all(place.is_replicate() for place in places):
                yield key, total(local(each))
        elif not hasattr(each, "local_shards"):
            yield key, _checksum(each)


def _checksum(value: Any) -> int:
    try:
        return zlib.crc32(pickle.dumps(value))
    except Exception:  # noqa: BLE001 - it has no form that two ranks could compare
        return 0


def watch(notes: Notes) -> None:
    """Look at the checkpoints of this process."""
    sums: dict[str, int] = {}
    planned = never_raises(lambda state: sums.update(_sums(state)))

    @never_raises
    def saved(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        writer = kwargs.get("storage_writer", args[1] if len(args) > 1 else None)
        at, path = users_line(), str(getattr(writer, "path", ""))
        notes.write(Checkpoint(at, notes.number(Checkpoint, at), path, sums))

    def follow(module: Any) -> None:
        # `save` itself may be imported by name before
        @notes.around(module, "_save_state_dict", why="a checkpoint is saved")
        def save(run: Any, /, *args: Any, **kwargs: Any) -> Any:
            sums.clear()
            result = run(*args, **kwargs)
            saved(args, kwargs)
            return result

    def plan(module: Any) -> None:
        @notes.around(module.DefaultSavePlanner, "create_local_plan", why="its state is flat by then")
        def create(run: Any, /, self: Any, *args: Any, **kwargs: Any) -> Any:
            planned(self.state_dict)
            return run(self, *args, **kwargs)

    notes.when_imported("torch.distributed.checkpoint.state_dict_saver", follow)
    notes.when_imported("torch.distributed.checkpoint.default_planner", plan)
