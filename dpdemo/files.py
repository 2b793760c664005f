"""Files: read whole and of a bounded size; written whole or not at all."""

import contextlib
import difflib
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from dpdemo.errors import RunError, UsageError

MOST_BYTES = 1 << 28
"""No config, source or traceback is longer; `/dev/zero` is."""


def read_bytes(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Read a file, a pipe or a device: at most one byte more than `most`, which says that there are more.

    Raises:
        OSError: if it cannot be read.

    """
    with open(path, "rb") as file:  # noqa: PTH123 - Path turns /dev/stdin's name around
        return file.read(most + 1)


def read_text(path: str | os.PathLike[str], errors: str = "strict") -> str:
    """Read a file as UTF-8.

    Raises:
        OSError: as `read_bytes` does, and for a file that is too long.
        ValueError: if it is not UTF-8.

    """
    data = read_bytes(path)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(path))
    return data.decode("utf-8", errors)


def current_folder() -> Path:
    """Return the current folder.

    Raises:
        UsageError: if it was deleted meanwhile.

    """
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(
            f"expected a current folder, got {error.strerror}: was it deleted?",
            hint="change to another: cd ~",
        ) from None


PICTURES = (".svg", ".html", ".txt")
"""Endings under which the picture of anything can be saved."""
FORMS = {".json": "json", ".csv": "csv", ".md": "markdown", ".sarif": "sarif"}
"""The formats that have an ending of their own."""


def endings(forms: Iterable[str]) -> tuple[str, ...]:
    """List the endings under which something with these formats can be saved."""
    known = set(forms)
    return (*PICTURES, *(ending for ending, form in FORMS.items() if form in known))


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Open a file beside `path` that takes its place at the end, or vanishes if anything goes wrong.

    Raises:
        RunError: if writing fails half-way, as on a full disk; the previous file is untouched.

    """
    place = Path(path).resolve()  # a link still points to its file afterwards
    try:
        with _beside(place) as file:
            yield file
    except OSError as error:
        raise RunError(
            f"could not save {os.fspath(path)!r}: {error.strerror or error}",
            hint="the previous file is untouched" if place.exists() else "choose another place",
        ) from error


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[TextIO]:
    beside = path.with_name(f".dpdemo-{secrets.token_hex(8)}.tmp")
    try:
        with beside.open("x", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            with contextlib.suppress(FileNotFoundError):  # a new file has what the umask leaves
                beside.chmod(stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:  # Ctrl-C too
        beside.unlink(missing_ok=True)
        raise


def check_save_path(
    path: str | os.PathLike[str],
    suffixes: Sequence[str],
    key: str = "save",
    *,
    read: Sequence[str | os.PathLike[str]] = (),
) -> None:
    """Check that something with these endings could be saved there, before anything runs.

    Args:
        path: where to.
        suffixes: the endings that name a form of it.
        key: the argument that names the path.
        read: the files that are being read, which must not be written over.

    Raises:
        UsageError: for an unknown ending, a directory, a missing folder, a place that cannot be written.

    """
    place = Path(path)
    try:
        problem = _problem(place, suffixes, key, read)
    except (OSError, ValueError) as error:  # a name too long, a loop of links, a zero byte
        why = getattr(error, "strerror", None) or error
        problem = f"a file that can be written ({why})", "choose another place"
    if problem is not None:
        expected, hint = problem
        raise UsageError(f"expected {expected}, got {str(place)!r}", key=key, hint=hint)


def _problem(
    place: Path, suffixes: Sequence[str], key: str, read: Sequence[str | os.PathLike[str]]
) -> tuple[str, str] | None:
    """Return what was expected of a place that cannot be saved to, and the next step."""
    if place.suffix.lower() not in suffixes:
        near = difflib.get_close_matches(place.suffix.lower(), suffixes, n=1) or suffixes
        stem = "" if place.name in suffixes else place.stem
        known = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        return f"a file ending in {known}", f"try {{{key}={place.parent / (stem or 'report')}{near[0]}}}"
    if not place.parent.is_dir():
        return "a file in an existing folder", f"make it first: mkdir -p {place.parent}"
    with contextlib.suppress(FileNotFoundError):
        place.stat()  # raises where no file can be
    is_new = not place.exists()
    if not (is_new or place.is_file()):
        return "a regular file", "for a pipe or a device use `--format` and redirect stdout"
    if not is_new and any(place.samefile(other) for other in read if Path(other).exists()):
        return "another file than the config that is read", "choose another name"
    if not all(os.access(path, os.W_OK) for path in (place.parent, *([] if is_new else [place]))):
        raise PermissionError(errno.EACCES, "read-only")
    return None
