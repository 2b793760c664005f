"""The taps of a process that is a rank, or becomes one, if `--check` asks for them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from dpdemo.ranks.against.settings import Settings
from dpdemo.ranks.observe.notes import Notes, holders

if TYPE_CHECKING:
    from dpdemo.ranks.against.files import PrivateFiles
    from dpdemo.ranks.against.state import State

_views: list[PrivateFiles] = []


def watch(notes: Notes, *, is_launched: bool) -> None:
    """Note what this rank does, or give it what all ranks noted.

    A process that the program starts is a rank once it joins a process group, and stays as it is until then.
    """
    settings = Settings.of_environment()
    if settings is None:
        return
    if is_launched:
        _install(settings, notes)
    elif settings.by_program:
        install = functools.cache(lambda: _install(settings, notes))

        @notes.around(holders("init_process_group"), "init_process_group", why="a rank joins for --check")
        def joins(init: Any, /, *args: Any, **kwargs: Any) -> Any:
            result = init(*args, **kwargs)
            if settings.is_replay or dist.get_world_size() > 1:
                install()
            return result


def give_view_alone(folder: str | None) -> None:
    """Install the private view of files in a process that is no rank, but starts the one that is compared."""
    settings = Settings.of_environment()
    if folder is not None and settings is not None and settings.by_program and settings.is_replay:
        from dpdemo.ranks.against.state import State

        _give_view(State(settings, Notes(Path(folder))))


def _give_view(state: State) -> None:
    """Install the private view of files once; a forked process keeps its parent's, with notes of its own."""
    from dpdemo.ranks.against import files

    if _views:
        _views[0].state = state
    else:
        _views.append(files.give_view(state))


def _install(settings: Settings, notes: Notes) -> None:
    from dpdemo.ranks.against.state import State

    state = State(settings, notes)
    try:
        _put(state)
    except Exception as error:  # noqa: BLE001 - another release of PyTorch, or a bug
        state.remark(f"PyTorch could not be followed: {type(error).__name__}: {error}", is_fatal=True)


def _put(state: State) -> None:
    """Put all taps into this process."""
    from dpdemo.ranks.against import draws, dropout, files, passes, rows, steps, worlds

    if state.settings.is_replay:
        _give_view(state)
        worlds.let_run_alone(state)
    else:
        files.note(state)
        worlds.note_owner(state)
    worlds.mark_partitions()
    rows.watch(state)
    draws.watch(state)
    dropout.turn_off()
    passes.watch(state)
    steps.watch(state)
