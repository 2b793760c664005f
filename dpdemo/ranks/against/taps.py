"""Put all taps into this process, if `--check` asks for them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dpdemo.ranks.against.settings import Settings

if TYPE_CHECKING:
    from dpdemo.ranks.observe.notes import Notes


def watch(notes: Notes) -> None:
    """Note what this rank does, or give it what all ranks noted."""
    settings = Settings.of_environment()
    if settings is None:
        return
    from dpdemo.ranks.against import draws, dropout, files, passes, rows, steps, worlds
    from dpdemo.ranks.against.state import State

    state = State(settings, notes, int(os.environ["RANK"]))
    if settings.is_replay:
        files.give_view(state)
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
