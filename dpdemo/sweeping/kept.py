"""Predictions that are kept from one sweep to the next, so that the same ones are made once.

Each question about a model has a file in the user's cache folder. A wrong prediction would be worse than
none: it counts only while everything that it was made from is unchanged (`sources.py`), and a file that
cannot be read or written is not an error; it just does not help. What a model takes from a clock, a network
or another program is not seen.
"""

import contextlib
import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from dpdemo.errors import RunError
from dpdemo.saving import replacing
from dpdemo.sweeping.sources import Sources, still_hold

SCHEMA = "dpdemo.predictions/1"
MOST_FILES = 64
"""How many are kept: the oldest go."""
_OF_THE_TERMINAL = {"_", "COLUMNS", "LINES", "OLDPWD", "SHLVL", "WINDOWID", "TERM", "COLORTERM", "NO_COLOR"}
"""What changes from call to call in the environment, and decides nothing about a model."""


def cache_folder() -> Path:
    """Return where predictions are kept: `dpdemo/predictions` in `$XDG_CACHE_HOME`, else in `~/.cache`.

    Raises:
        RuntimeError: the user has no home.

    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if given else Path.home() / ".cache") / "dpdemo" / "predictions"


class Kept:
    """The predictions of one question, by the numbers of GPUs and rows that they are for."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._sources: Sources | None = None
        self._found: dict[str, object] = {}
        if path is not None:
            self._read(path)

    @classmethod
    def of(cls, question: object, folder: Path) -> "Kept":
        """Open what is kept for a question: all that a prediction depends on beside the files that are read.

        Args:
            question: its `repr` says all of it.
            folder: where predictions are kept.

        """
        environment = {key: value for key, value in os.environ.items() if key not in _OF_THE_TERMINAL}
        told = (SCHEMA, repr(question), sys.version, platform.machine(), sys.path, os.getcwd())  # noqa: PTH109
        checksum = hashlib.sha256(repr((told, sorted(environment.items()))).encode())
        return cls(folder / f"{checksum.hexdigest()}.json")

    def get(self, name: str) -> object:
        """Return a prediction as plain data; None where there is none."""
        return self._found.get(name)

    def add(self, made: Mapping[str, object], sources: Sources) -> None:
        """Keep what was predicted from these sources, beside what was kept before."""
        found = {**self._found, **made}
        if self._path is None or not sources.are_settled or not made:
            return
        merged = sources if self._sources is None else self._sources.joined(sources)
        told = {"schema": SCHEMA, "sources": merged.to_dict(), "predictions": found}
        with contextlib.suppress(OSError, RunError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self._path) as file:
                json.dump(told, file)
            _drop_oldest(self._path.parent)

    def _read(self, path: Path) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            told = json.loads(path.read_text(encoding="utf-8"))
            sources = Sources.from_dict(told["sources"])
            if told["schema"] == SCHEMA and still_hold(sources):
                self._sources, self._found = sources, dict(told["predictions"])


def _drop_oldest(folder: Path) -> None:
    files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in files[MOST_FILES:]:
        path.unlink(missing_ok=True)
