"""The last net under every command: what the machine refuses is an error in our words, and no traceback."""

import os

from dpdemo.errors import DpdemoError, UsageError
from dpdemo.reading import current_folder
from dpdemo.wording import show


def as_ours(error: Exception) -> DpdemoError | None:
    """Say in our words what went wrong with a path or with memory; None where it is anything else."""
    if isinstance(error, OSError):
        if error.filename is None:
            return _no_current_folder() if isinstance(error, FileNotFoundError) else None
        where = show(os.fsdecode(error.filename))
        return UsageError(
            f"expected a path that can be used, got {where}: {error.strerror}", hint="name another place"
        )
    if isinstance(error, ValueError) and str(error).startswith("embedded null "):
        return UsageError("expected a path, got one with a zero byte", hint="name another place")
    from dpdemo.models.failure import out_of_memory

    return out_of_memory(error, "do this here")


def _no_current_folder() -> UsageError | None:
    try:
        current_folder()
    except UsageError as error:
        return error
    return None
