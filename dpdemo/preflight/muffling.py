"""Dropping what user code prints, logs and warns of while it is run for our own ends."""

import contextlib
import logging
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from dpdemo.preflight.watch import here


class Muffled:
    """Stands in for a stream: drops what one thread and the replicas write, and hands on all the rest.

    Whoever keeps it, as a handler of `logging` made meanwhile does, has the plain stream after `ends`.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._thread: int | None = threading.get_ident()

    def ends(self) -> None:
        """Hand everything on from now on."""
        self._thread = None

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        return len(text) if self._drops() else self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, or drop them."""
        for line in lines:
            self.write(line)

    def _drops(self) -> bool:
        if self._thread is None:
            return False
        return here.replica is not None or threading.get_ident() == self._thread

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def no_output() -> Iterator[None]:
    """Drop prints, logs and warnings of this thread for the length of a `with` block."""
    logged = logging.root.manager.disable
    with _muffled("stdout"), _muffled("stderr"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable()
        try:
            yield
        finally:
            logging.disable(logged)


@contextlib.contextmanager
def _muffled(name: str) -> Iterator[None]:
    stream = getattr(sys, name)
    if stream is None:  # as without a console: prints go nowhere
        yield
        return
    muffled = Muffled(stream)
    setattr(sys, name, muffled)
    try:
        yield
    finally:
        muffled.ends()
        if getattr(sys, name) is muffled:
            setattr(sys, name, stream)
