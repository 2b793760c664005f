"""What happens when stdout takes no more: a reader that left, a disk that is full, a file that is read."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dpdemo.errors import RunError

READER_LEFT = 141
"""What a shell says of a tool that SIGPIPE ended: 128 + 13.

`head` closes the pipe once it has its lines, and no more than that has happened. The example in Python's
documentation of SIGPIPE, Click and Rich make exit code 1 of it; but here 1 says that something failed or that
a check found an error, and a script with `set -o pipefail` has to tell these apart. The signal itself stays
ignored, as Python leaves it: at its default it would end a rank of DDP, or the program of `exec`, for a
socket that the other side has closed.
"""
_REFUSED = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EINVAL}


@contextmanager
def writing_out() -> Iterator[None]:
    """End with READER_LEFT and without a word once nobody reads stdout.

    Raises:
        RunError: what stdout leads to cannot be written.

    """
    try:
        yield
    except BrokenPipeError:
        _drop_the_rest()
        sys.exit(READER_LEFT)
    except OSError as error:
        if error.errno not in _REFUSED or error.filename is not None:
            raise
        _drop_the_rest()
        raise RunError(f"could not write to stdout: {error.strerror}") from None


def _drop_the_rest() -> None:
    """Lead stdout to nowhere: when Python ends it would try to write what is left, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
