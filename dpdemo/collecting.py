"""Python's garbage collector, kept off while modules are imported."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Keep the garbage collector from looking through what is being imported.

    Importing torch makes a million objects and no garbage; looking through them is a tenth of its time, and
    no less of the time of a command without torch. What was imported stays for good, so it is frozen
    afterwards: later collections need not look at it either.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
