"""Files that are read: whole, of a bounded size, and without waiting forever."""

import errno
import json
import os
import select
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from dpdemo.errors import UsageError

MOST_BYTES = 1 << 28
"""No config, report, recording or traceback is longer; `/dev/zero` is."""
WAITS_SECONDS = 10.0
"""How long a pipe may give nothing, such as `<(command)` of a shell, or a FIFO that nobody writes to."""
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
