"""Reports on stdout and in files, and what happens when stdout takes no more."""

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dpdemo.cli.edge import print_hint
from dpdemo.errors import RunError

if TYPE_CHECKING:
    from dpdemo.results.report import Report

READER_LEFT = 141
"""The exit code that a shell reports for a tool that SIGPIPE ended: 128 + 13.

`head` closes the pipe once it has its lines, which is not an error. Typer and Rich exit with 1, which here
means a failed run or a finding; a script with `set -o pipefail` must tell these apart. The signal itself
stays ignored, Python's default: otherwise a closed socket would end a rank of DDP or the program of `exec`.
"""
_REFUSED = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EINVAL}


def print_report(report: "Report", form: str, paths: Sequence[Path] | None, *, quiet: bool) -> None:
    """Save a report under every path, then write it to stdout.

    The files come first: the reader of stdout may leave before the end, and wants the files nevertheless.
    """
    for path in paths or ():
        report.save(path)
        if not quiet:
            print_hint(f"saved to {path}")
    report.write(form)


@contextmanager
def writing_out(*, flush: bool) -> Iterator[None]:
    """Exit silently with READER_LEFT once nobody reads stdout.

    Args:
        flush: write all buffered output at the end of the block.

    Raises:
        RunError: stdout cannot be written.

    """
    try:
        try:
            yield
        finally:
            if flush:
                sys.stdout.flush()
    except BrokenPipeError:
        _drop_the_rest()
        sys.exit(READER_LEFT)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # Typer and Rich exit with 1
            _drop_the_rest()
            sys.exit(READER_LEFT)
        raise
    except OSError as error:
        if error.errno not in _REFUSED or error.filename is not None:
            raise
        _drop_the_rest()
        raise RunError(f"could not write to stdout: {error.strerror}") from None


def _drop_the_rest() -> None:
    """Redirect stdout to /dev/null: at exit Python would otherwise flush its buffer and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
