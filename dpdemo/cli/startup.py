"""Loading torch without the collector: importing it makes a million objects, none of them garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """Keep the garbage collector from looking through what is being imported.

    That look is a tenth of torch's import time. What was imported stays for good, so it is frozen
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
