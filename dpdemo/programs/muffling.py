"""Dropping what user code prints, logs and warns of while it is run for our own purposes."""

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dpdemo.calls.seam import replaced
from dpdemo.checking.recording.inside import being, here


class MuffledStream:
    """Stands in for a stream: drops what a thread and its replicas write aside, and hands on all the rest.

    Code that keeps it, such as a handler of `logging` made meanwhile, has the plain stream after `ends`.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._has_ended = False

    def ends(self) -> None:
        """Hand everything on from now on."""
        self._has_ended = True

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        return len(text) if here.is_aside and not self._has_ended else self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, or drop them."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextlib.contextmanager
def no_output() -> Iterator[None]:
    """Drop prints and logs of this thread and its replicas, and warnings, in a `with` block."""
    with (
        being(is_aside=True),
        _muffled("stdout"),
        _muffled("stderr"),
        replaced(logging.Logger, "handle", _muffled_handle),
        _shown_warnings_stay_shown(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def _muffled_handle(name: str, genuine: Callable[..., None]) -> Callable[..., None]:
    del name

    def handle(logger: logging.Logger, record: logging.LogRecord) -> None:
        if not here.is_aside:
            genuine(logger, record)

    return handle


class _UnseenWarning(UserWarning):
    """Never shown: given to learn whether filters have changed."""


def _filters_version() -> object:
    """Read how often filters have changed, as Python counts: a module's notes hold for one number only."""
    notes: dict[Any, Any] = {}
    unseen = replaced(warnings, "showwarning", lambda *_: lambda *_, **__: None)
    with unseen, contextlib.suppress(_UnseenWarning):  # where filters make errors of warnings
        warnings.warn_explicit("", _UnseenWarning, __file__, 1, registry=notes)
    return notes["version"]


@contextlib.contextmanager
def _shown_warnings_stay_shown() -> Iterator[None]:
    """Keep Python's notes of what was shown: a change of filters voids them, and all is shown again."""
    version = _filters_version()
    modules = list(sys.modules.values())
    registries = [getattr(module, "__dict__", {}).get("__warningregistry__") for module in modules]
    kept = [(notes, dict(notes)) for notes in registries if notes and notes.get("version") == version]
    try:
        yield
    finally:
        now = _filters_version()
        for notes, before in kept:
            notes.clear()
            notes.update(before, version=now)


@contextlib.contextmanager
def _muffled(name: str) -> Iterator[None]:
    stream = getattr(sys, name)
    if stream is None:  # as without a console: prints go nowhere
        yield
        return
    muffled = MuffledStream(stream)
    setattr(sys, name, muffled)
    try:
        yield
    finally:
        muffled.ends()
        if getattr(sys, name) is muffled:
            setattr(sys, name, stream)
