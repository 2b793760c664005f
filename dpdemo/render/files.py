"""Saving a report to a file, whole or not at all."""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from dpdemo.errors import RunError
from dpdemo.render.saving import check_save_path
from dpdemo.report import SplitReport

if TYPE_CHECKING:
    from dpdemo.render import Format

_PLAIN: "dict[str, Format]" = {".json": "json", ".csv": "csv", ".md": "markdown"}


def save_report(report: SplitReport, path: str | os.PathLike[str], *, verbose: bool) -> None:
    """Write the report in the format of the file's ending, then put it in the old file's place.

    Raises:
        UsageError: if nothing can be saved there.
        RunError: if writing fails half-way.

    """
    check_save_path(path)
    try:
        with _replacing(Path(path).resolve()) as file:  # a link goes on pointing to its file
            _write(report, Path(path).suffix.lower(), file, verbose=verbose)
    except OSError as error:
        raise RunError(
            f"could not save {os.fspath(path)!r}: {error.strerror or error}",
            hint="what stood there before is untouched",
        ) from error


def _write(report: SplitReport, suffix: str, file: IO[str], *, verbose: bool) -> None:
    if suffix in _PLAIN:
        from dpdemo.render.plain import pieces

        file.writelines(pieces(report, _PLAIN[suffix], verbose=verbose))
        return
    from dpdemo.render import pictures

    if suffix == ".txt":
        pictures.write_text(report, file, verbose=verbose)
    else:
        make = pictures.svg if suffix == ".svg" else pictures.html
        file.write(make(report, verbose=verbose))


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[str]]:
    """Open a file beside `path` that takes its place at the end, or vanishes if anything goes wrong."""
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
