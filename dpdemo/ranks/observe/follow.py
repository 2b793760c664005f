"""Observe this process if it is, or becomes, a rank of a program that dpdemo launched."""

from __future__ import annotations

import atexit
import functools
import multiprocessing.util
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpdemo.ranks.events import Ended
from dpdemo.ranks.log import NOTES
from dpdemo.ranks.processes import has_reader, is_running

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.ranks.observe.notes import Notes
    from dpdemo.virtual import VirtualGpus

_NOT_DESTROYED = (
    "[rank0]: Warning: WARNING: destroy_process_group() was not called before program exit, which can leak "
    "resources. For more info, please see https://pytorch.org/docs/stable/distributed.html#shutdown"
)
_LOOK_S, _LOOKS, _REST_S = 0.002, 3, 1.0


def follow(gpus: VirtualGpus, *, is_launched: bool = False, is_late: bool = False) -> None:
    """Note this process's collectives, waits and errors, if somebody reads them.

    Where a launcher of ranks started this process, the launcher prints its traceback and outlives it.
    """
    folder = os.environ.get(NOTES)
    if folder is None or not has_reader(folder):
        return
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        return
    from dpdemo.ranks.observe.notes import Notes

    notes = Notes(Path(folder))
    sums = notes.install("ranks", lambda: observe(notes, is_launched=is_launched, is_late=is_late))

    @functools.cache
    def end() -> None:
        if os.getpid() == notes.process:
            indices = range(len(gpus.visible)) if gpus.is_started else ()
            peaks = {f"cuda:{index}": gpus.peak_bytes(index) for index in indices}
            if sums is not None:
                sums({device: peak for device, peak in peaks.items() if peak})
            notes.close()
            if not has_reader(folder):  # it was killed, and could not remove them
                shutil.rmtree(folder, ignore_errors=True)
            known: Any = dist.distributed_c10d._world.pg_map  # empty after an abort
            has_nccl = known.get(dist.group.WORLD, ("",))[0] == "nccl"
            if has_nccl and dist.get_rank() == 0 and not hasattr(sys, "last_type"):
                print(_NOT_DESTROYED, file=sys.stderr)  # noqa: T201 - ProcessGroupNCCL's own words
            _let_threads_rest()

    atexit.register(end)
    multiprocessing.util.Finalize(None, end, exitpriority=0)  # a forked process calls no atexit function


def observe(notes: Notes, *, is_launched: bool, is_late: bool) -> Callable[[dict[str, int]], None]:
    """Install all observers, and return a function that notes their sums and the GPUs' peaks at the end."""
    from dpdemo.ranks.against import taps
    from dpdemo.ranks.observe import (
        checkpoints,
        collectives,
        doors,
        draws,
        dtensors,
        empties,
        errors,
        files,
        full_gpu,
        graph,
        hints,
        loads,
        losses,
        optimizers,
        reads,
        training,
        traps,
        waits,
        wrappers,
    )
    from dpdemo.virtual.ops.collectives import listeners

    drawn = doors.watch(notes)
    modules = training.watch(notes, drawn)
    stepped = optimizers.watch(notes, modules)
    made = collectives.watch(notes, modules.backward_passes)
    loaded = loads.watch(notes, modules)
    waits.watch(notes, modules, is_launched=is_launched)
    errors.watch(notes, lambda error: hints.hints(modules, error), is_launched=is_launched)
    for listener in (modules.collective, made, graph.watch(notes), loaded.collective):
        notes.listen(listeners, listener)
    for name, begin in {
        "models that are wrapped": lambda: wrappers.watch(modules),
        "checkpoints": lambda: checkpoints.watch(notes),
        "DTensors": lambda: dtensors.watch(notes),
        "tensors without values": lambda: empties.watch(notes),
        "random numbers": lambda: draws.watch(notes, lambda: modules.steps),
        "calls that go wrong": lambda: traps.watch(notes),
        "losses": lambda: losses.watch(notes, drawn.sizes),
        "files": lambda: files.watch(notes, lambda: made.total),
        "numbers that are read": lambda: reads.watch(notes, lambda: made.total),
        "steps for --check": lambda: taps.watch(notes, is_launched=is_launched),
        "what a full GPU holds": lambda: full_gpu.watch(notes),
        "processes": lambda: None if is_late else errors.watch_processes(notes.around),
    }.items():
        notes.install(name, begin)

    def sums(peaks: dict[str, int]) -> None:
        for each in (drawn.end_all, modules.end, stepped.end, loaded.end):
            each()
        notes.write(Ended(peaks, tuple(modules.unused()), modules.backward_passes()))

    return sums


def follow_program(gpus: VirtualGpus) -> Callable[[], object]:
    """Follow this process if it is a rank, or once it, or one forked from it, joins a process group.

    Returns:
        A function that stops waiting for it.

    """
    if "RANK" in os.environ:
        follow(gpus)
        return lambda: None
    import torch.distributed as dist

    from dpdemo.ranks.against import taps
    from dpdemo.ranks.observe import errors
    from dpdemo.ranks.observe.notes import holders
    from dpdemo.virtual.applying import Patches

    taps.give_view_alone(os.environ.get(NOTES))
    if not dist.is_available():
        return lambda: None
    c10d: Any = dist.distributed_c10d
    patches, waiting = Patches(), Patches()
    errors.watch_processes(patches.around)

    @waiting.around(holders("init_process_group"), "init_process_group", why="this process becomes a rank")
    def join(_: Any, /, *args: Any, **kwargs: Any) -> Any:
        if undo():
            follow(gpus, is_late=True)
        return c10d.init_process_group(*args, **kwargs)

    def undo() -> bool:
        """Stop waiting, unless the program has put a function of its own around ours."""
        is_ours = c10d.init_process_group is join
        if is_ours:
            waiting.undo()
        return is_ours

    return undo


def _let_threads_rest() -> None:
    """Wait until no thread of gloo runs: one that drops tensors while Python ends would abort the process.

    It needs the interpreter's lock for that, and a thread that asks for the lock then is ended inside C++.
    """
    deadline, looks = time.monotonic() + _REST_S, 0
    while looks < _LOOKS and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        looks = 0 if is_running() else looks + 1
