"""Writing a file whole or not at all."""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dpdemo.errors import RunError


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[str]]:
    """Open a file beside `path` that takes its place at the end, or vanishes if anything goes wrong.

    Raises:
        RunError: if writing fails half-way, as on a full disk; what stood there before is untouched.

    """
    place = Path(path).resolve()  # a link goes on pointing to its file
    try:
        with _beside(place) as file:
            yield file
    except OSError as error:
        raise RunError(
            f"could not save {os.fspath(path)!r}: {error.strerror or error}",
            hint="what stood there before is untouched",
        ) from error


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[IO[str]]:
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
