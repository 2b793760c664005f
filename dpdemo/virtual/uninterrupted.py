"""Ctrl-C held back while PyTorch is half replaced.

Python raises KeyboardInterrupt between any two instructions of the main thread. Between the replacing of an
attribute and the noting of what stood there it would leave PyTorch changed for good; so for the milliseconds
in which a block opens or closes the signal is only noted, and raised when everything is in its place.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back for the length of a `with` block; if it came, it is raised at the end.

    Does nothing outside the main thread, or where no Python function handles the signal.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *given: came.append(given))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[-1])
