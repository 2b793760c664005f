"""Where a report can be saved: asked before anything runs, so it needs nothing but the file system."""

import difflib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from dpdemo.errors import UsageError

PICTURES = (".svg", ".html", ".txt")
"""Endings under which anything that is drawn can be saved."""
SUFFIXES = (*PICTURES, ".json", ".csv", ".md")
"""Endings under which a report can be saved."""

_WHERE = "at option `--save`"


def check_save_path(path: str | os.PathLike[str], suffixes: Sequence[str] = SUFFIXES) -> None:
    """Check that something with these endings, a report's if left out, could be saved there.

    Raises:
        UsageError: for an unknown ending, a directory, a missing folder or an unwritable place.

    """
    place = Path(path)
    mode = _mode(place)
    if mode is not None and stat.S_ISDIR(mode):
        raise UsageError(
            f"expected a file, got the directory {str(place)!r} - {_WHERE}",
            hint=f"name a file in it: --save {place / 'report.svg'}",
        )
    if place.suffix.lower() not in suffixes:
        raise _unknown_ending(place, suffixes)
    _check_folder(place.parent)
    if mode is not None:
        _check_file(place, mode)


def _mode(place: Path) -> int | None:
    """Look at what stands there; None when nothing does."""
    try:
        return place.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # a name too long, a loop of links, a zero byte
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"expected a file that can be written, got {str(place)!r} ({why}) - {_WHERE}",
            hint="choose another place",
        ) from None


def _unknown_ending(place: Path, suffixes: Sequence[str]) -> UsageError:
    near = difflib.get_close_matches(place.suffix.lower(), suffixes, n=1) or [".svg"]
    better = place.with_name(f"report{place.name}" if place.name in suffixes else place.stem + near[0])
    known = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
    return UsageError(
        f"expected a file ending in {known}, got {str(place)!r} - {_WHERE}",
        hint=f"try --save {better}",
    )


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(
            f"expected a file in an existing folder, got the folder {str(folder)!r} - {_WHERE}",
            hint=f"make it first: mkdir -p {folder}",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"expected a folder that can be written, got {str(folder)!r} - {_WHERE}",
            hint="choose a folder of your own",
        )


def _check_file(place: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"expected a regular file, got {str(place)!r} - {_WHERE}",
            hint="to write to a pipe or a device, use --format and redirect stdout",
        )
    if not os.access(place, os.W_OK):
        raise UsageError(
            f"expected a file that can be written, got {str(place)!r}, which is read-only - {_WHERE}",
            hint=f"allow it with chmod u+w {place}, or choose another name",
        )
