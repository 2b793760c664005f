"""The decorator of a mistake, and the guard around each detector."""

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dpdemo.ranks.mistakes.evidence import Evidence
from dpdemo.results.ranks import Mistake

__all__ = ["Evidence", "Found", "Mistake", "mistake"]

Found = Iterator[Mistake]
Find = Callable[[Evidence], Found]


@dataclass(frozen=True)
class Detector:
    """One mistake: its name, its page, and the function that finds it."""

    name: str
    page: str
    find: Find
    when_stopped: bool = False  # whether it also judges ranks that were stopped before their end

    def judge(self, evidence: Evidence) -> list[Mistake]:
        """Return what was found; if the detector fails, a note with its name."""
        try:
            return list(self.find(evidence))
        except Exception as error:  # noqa: BLE001 - a bug here costs one line, not the report
            return [unjudged(self.name, error)]

    def section(self, title: str) -> str:
        """Return a paragraph of the page, `Seen in` or `Instead`, in one line."""
        parts = (part for part in self.page.split("\n\n") if part.startswith(f"{title}:"))
        return " ".join(next(parts).removeprefix(f"{title}:").split())

    def summary(self) -> str:
        """Return the page's first line without its full stop."""
        return self.page.partition("\n")[0].removesuffix(".")


def unjudged(name: str, error: Exception) -> Mistake:
    """Return a note about a part of the report that failed."""
    text = f"`{name}` could not be judged: {type(error).__name__}: {error}"
    return Mistake(text, "dpdemo", "This is a bug in dpdemo. Please report it.", "note")


DETECTORS: list[Detector] = []


def mistake(name: str, *, when_stopped: bool = False) -> Callable[[Find], Find]:
    """Register a function as the detector of a mistake; its file's docstring is the page."""

    def register(find: Find) -> Find:
        page = inspect.cleandoc(sys.modules[find.__module__].__doc__ or "")
        DETECTORS.append(Detector(name, page, find, when_stopped))
        return find

    return register
