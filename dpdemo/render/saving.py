"""Where a report can be saved: asked before anything runs, so it needs nothing but the file system."""

import difflib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dpdemo.errors import UsageError

PICTURES = (".svg", ".html", ".txt")
"""Endings under which anything that is drawn can be saved."""
SUFFIXES = (*PICTURES, ".json", ".csv", ".md")
"""Endings under which a report can be saved."""


def check_save_path(
    path: str | os.PathLike[str], suffixes: Sequence[str] = SUFFIXES, option: str = "--save"
) -> None:
    """Check that something with these endings, a report's if left out, could be saved there.

    `option` is the one that names the path; an argument has none.

    Raises:
        UsageError: for an unknown ending, a directory, a missing folder or an unwritable place.

    """
    target = _Target(Path(path), tuple(suffixes), option)
    place, mode = target.place, _mode(target)
    if mode is not None and stat.S_ISDIR(mode):
        better = place / f"report{suffixes[0]}"
        raise target.refused(
            f"a file, got the directory {str(place)!r}", f"name a file in it: {target.named(better)}"
        )
    if place.suffix.lower() not in suffixes:
        raise _unknown_ending(target)
    _check_folder(target)
    if mode is not None:
        _check_file(target, mode)


class _Target(NamedTuple):
    place: Path
    suffixes: tuple[str, ...]
    option: str

    def refused(self, but: str, hint: str) -> UsageError:
        """Make the error that says what was expected and got, and where."""
        where = f"at option `{self.option}`" if self.option else "at argument `FILE`"
        return UsageError(f"expected {but} - {where}", hint=hint)

    def named(self, place: Path) -> str:
        """Write another path as its user would."""
        return f"{self.option} {place}".lstrip()


def _mode(target: _Target) -> int | None:
    """Look at what stands there; None when nothing does."""
    try:
        return target.place.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # a name too long, a loop of links, a zero byte
        why = getattr(error, "strerror", None) or error
        raise target.refused(
            f"a file that can be written, got {str(target.place)!r} ({why})", "choose another place"
        ) from None


def _unknown_ending(target: _Target) -> UsageError:
    place, suffixes, _ = target
    near = difflib.get_close_matches(place.suffix.lower(), suffixes, n=1) or suffixes
    better = place.with_name(f"report{place.name}" if place.name in suffixes else place.stem + near[0])
    known = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
    return target.refused(f"a file ending in {known}, got {str(place)!r}", f"try {target.named(better)}")


def _check_folder(target: _Target) -> None:
    folder = target.place.parent
    if not folder.is_dir():
        raise target.refused(
            f"a file in an existing folder, got the folder {str(folder)!r}",
            f"make it first: mkdir -p {folder}",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise target.refused(
            f"a folder that can be written, got {str(folder)!r}", "choose a folder of your own"
        )


def _check_file(target: _Target, mode: int) -> None:
    place = target.place
    if not stat.S_ISREG(mode):
        hint = "to write to a pipe or a device, use --format and redirect stdout"
        raise target.refused(
            f"a regular file, got {str(place)!r}", hint if target.option else "choose another place"
        )
    if not os.access(place, os.W_OK):
        raise target.refused(
            f"a file that can be written, got {str(place)!r}, which is read-only",
            f"allow it with chmod u+w {place}, or choose another name",
        )
