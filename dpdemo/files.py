"""Files: read whole, of a bounded size and without waiting forever; written whole or not at all."""

import contextlib
import difflib
import errno
import json
import os
import secrets
import select
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO

from dpdemo.errors import RunError, UsageError

MOST_BYTES = 1 << 28
"""No config, report, recording or traceback is longer; `/dev/zero` is."""
WAITS_SECONDS = 10.0
"""Time without data after which a pipe counts as dead, such as a FIFO that nobody writes to."""
_PART = 1 << 20


def read_bytes(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Read a file, or what comes through a pipe.

    Args:
        path: a file, a pipe, or a device such as `/dev/stdin`.
        most: how many bytes are read at most; one more says that there are more.

    Raises:
        OSError: if it cannot be read, or nothing comes of it.

    """
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        data = bytearray()
        for part in _parts(file, is_ready=stat.S_ISREG(os.fstat(file.fileno()).st_mode)):
            data += part
            if len(data) > most:
                break
    return bytes(data[: most + 1])


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _parts(file: IO[bytes], *, is_ready: bool) -> Iterator[bytes]:
    while True:
        if not is_ready and not select.select([file], [], [], WAITS_SECONDS)[0]:
            raise TimeoutError(errno.ETIMEDOUT, f"nothing came of it in {WAITS_SECONDS:g} s")
        part = file.read(_PART)
        if part == b"":
            return
        yield part or b""  # None where another reader was faster


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


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a file as JSON, which knows no NaN and no infinity.

    Raises:
        OSError: as `read_text` does.
        ValueError: if it is not JSON, or is nested too deep to be read.

    """
    try:
        return json.loads(read_text(path), parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


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
            hint="the previous file is untouched",
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
    target = _Target(Path(path), tuple(suffixes), key)
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
        if any(_is_same(place, other) for other in read):
            raise target.refused(
                f"a file of its own, got {str(place)!r}, which is being read", "choose another name"
            )


def _is_same(place: Path, other: str | os.PathLike[str]) -> bool:
    try:
        return place.samefile(other)
    except OSError:
        return False


class _Target(NamedTuple):
    place: Path
    suffixes: tuple[str, ...]
    key: str

    def refused(self, but: str, hint: str) -> UsageError:
        """Build the error that names what was expected and got."""
        return UsageError(f"expected {but}", key=self.key, hint=hint)

    def named(self, place: Path) -> str:
        """Write another path as its user would."""
        return f"{{{self.key}={place}}}"


def _mode(target: _Target) -> int | None:
    """Return the mode of an existing file; None if there is none."""
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
        hint = "to write to a pipe or a device, use `--format` and redirect stdout"
        raise target.refused(f"a regular file, got {str(place)!r}", hint)
    if not os.access(place, os.W_OK):
        raise target.refused(
            f"a file that can be written, got {str(place)!r}, which is read-only",
            f"allow it with chmod u+w {place}, or choose another name",
        )
