"""Ranks made other folders or files by a name of their own.

A name made of the time, a random number or the process differs on each rank.

Seen in: the folders and files that one line made on each rank, and that differ in more than the rank's number

Instead: make the name on rank 0, and share it: `dist.broadcast_object_list([name])`
"""

import os
import re
from collections.abc import Iterable, Sequence

from dpdemo.ranks.events import Checkpoint, PathMade
from dpdemo.ranks.mistakes.evidence import by_rank
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_PARTS = re.compile(r"[A-Za-z]+|\d+|[^A-Za-z\d]+")
_RANDOM = re.compile(r"(?=[^\W_]*\d[^\W_]*[a-f])[\da-f]{6,}|(?=[^\W_]*[a-f][^\W_]*\d)[\da-f]{6,}")
_REMEDY = "make the name on rank 0 and share it: names = [name]; dist.broadcast_object_list(names)"


@mistake("other-paths")
def find(evidence: Evidence) -> Found:
    """Compare the paths that one line made on each rank, if it made one of its own kind on each."""
    saved = [_by_line(noted[Checkpoint]) for noted in evidence.ranks.values()]
    made = [_by_line(noted[PathMade]) for noted in evidence.ranks.values()]
    told: set[str] = set()
    made_before: list[list[str]] = []
    for rows, is_collective in ((saved, True), (made, False)):
        for at in rows[0]:
            if at in told or not all(at in mine for mine in rows):
                continue
            events = [mine[at][0] for mine in rows]
            paths = [_one_name([event.path for event in mine[at]]) for mine in rows]
            is_known = any(all(map(str.startswith, paths, known)) for known in made_before)
            ought = is_collective or any(map(_ought_to_be_one, events))
            if ought and not is_known and all(paths) and _differ(paths, list(evidence.ranks)):
                told.add(at)
                made_before.append([f"{path}{os.sep}" for path in paths])
                yield _mistake(evidence, at, paths)


def _by_line(events: Iterable[Checkpoint | PathMade]) -> dict[str, list[Checkpoint | PathMade]]:
    found: dict[str, list[Checkpoint | PathMade]] = {}
    for event in events:
        found.setdefault(event.at, []).append(event)
    return found


def _one_name(paths: Sequence[str]) -> str:
    """Return the path that a line made, or the folder of several, such as one for each sample."""
    return paths[0] if len(paths) == 1 else os.path.commonpath(paths)


def _ought_to_be_one(event: Checkpoint | PathMade) -> bool:
    """Return whether it is a folder, or its name has a time, a process or something random."""
    return (
        not isinstance(event, PathMade)
        or event.is_folder
        or event.is_named_by_chance
        or bool(
            _RANDOM.search(os.path.basename(event.path))  # noqa: PTH119 - text
        )
    )


def _mistake(evidence: Evidence, at: str, paths: Sequence[str]) -> Mistake:
    shared = os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120 - text
    names = [os.path.relpath(path, shared) if shared else path for path in paths]
    made = by_rank(evidence.ranks, names)
    return Mistake(f"Each rank made a path of its own: {made}", at, _REMEDY)


def _differ(paths: Sequence[str], ranks: Sequence[int]) -> bool:
    """Return whether paths differ by more than the rank's number, as `rank0` and `rank1` do, or by a word."""
    if len(set(paths)) < len(paths):
        return False
    parts = [_PARTS.findall(path) for path in paths]
    if len(set(map(len, parts))) > 1:
        return any(any(part.isdigit() for part in mine) for mine in parts)
    columns = [column for column in zip(*parts, strict=True) if len(set(column)) > 1]
    numbers = [column for column in columns if all(part.isdigit() for part in column)]
    return bool(numbers) and not all(_are_ranks(column, ranks) for column in numbers)


def _are_ranks(column: Sequence[str], ranks: Sequence[int]) -> bool:
    """Return whether numbers in names count the ranks, from 0 or 1."""
    return len({int(part) - rank for part, rank in zip(column, ranks, strict=True)} - {0, 1}) == 0
