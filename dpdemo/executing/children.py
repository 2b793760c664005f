"""Virtual GPUs for the Python processes that a program starts: ranks, workers, launchers, subprocesses.

Each Python imports `sitecustomize` when it starts. The folder `startup` holds one and comes first on
PYTHONPATH while the program runs. In a child it waits until torch is imported and then opens the same GPUs as
in the parent: each process sees all of them, as on one machine. `CUDA_VISIBLE_DEVICES` reaches a child as the
program set it. Where the program set nothing, children inherit a name that no GPU has: real GPUs stay hidden
from them, and `sitecustomize` takes it for an unset variable.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpdemo.executing.hardware import Hardware
from dpdemo.executing.startup.sitecustomize import GPUS, HIDDEN, PATH, VISIBLE

_STARTUP = str(Path(__file__).parent / "startup")


@contextmanager
def reaching_children(hardware: Hardware) -> Iterator[None]:
    """Open these GPUs in each Python that the process starts, too, for the length of a `with` block."""
    before = {name: os.environ.get(name) for name in (GPUS, PATH, VISIBLE)}
    os.environ[GPUS] = hardware.to_text()
    os.environ[PATH] = os.pathsep.join(filter(None, (_STARTUP, before[PATH])))
    os.environ[VISIBLE] = HIDDEN
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
