"""The project's exceptions, and how they are worded.

DpdemoError              something went wrong, and the user can act on it
├── UsageError           bad usage or config: nothing was run (exit code 2)
├── RunError             it ran and failed (exit code 1)
│   └── PeerFailedError  a rank stopped because another rank failed, which reports why (1)
└── CheckFailedError     a gate that the user set was not passed (exit code 1)

Ctrl-C during a run is a KeyboardInterrupt that carries what was done before it: `epochs/interrupts.py`.

A message has what was expected and what was got; `key` names the argument or config key at fault; `hint` is
the next step. A hint writes a setting as `{gpus=[0, 1]}` and a bare key as `{gpus=}`. The edge words them:
`str(error)` for Python (gpus=[0, 1]), `cli/edge.py` for the command line (--gpus 0,1). A key that was set in
a file is worded with the file's line and as YAML (gpus: [0, 1]).
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_IN_PYTHON = {"input": "inputs"}
"""Arguments whose option has another name."""
_SETTING = re.compile(r"\{(\w+)=([^{}]*)\}")


class Caller:
    """The words of a caller for keys and settings: those of Python."""

    def name(self, key: str) -> str:
        """Name a key at the end of a message."""
        return f"argument `{_IN_PYTHON.get(key, key)}`"

    def setting(self, key: str, value: str) -> str:
        """Write a key with its value, or alone if the value is empty."""
        key = _IN_PYTHON.get(key, key)
        if not value:
            return key
        if value in {"true", "false"}:
            return f"{key}={value.capitalize()}"
        return f"{key}={value}" if value[0] in "[0123456789" else f"{key}={value!r}"


class DpdemoError(Exception):
    """The base of every error that dpdemo raises for a user's mistake or a failed run.

    Args:
        message: what was expected and what was got.
        key: the argument or config key at fault; two that exclude each other with a space between them.
        hint: the next step.
        place: the file and line of the mistake.

    """

    exit_code = 1

    def __init__(self, message: str, *, key: str = "", hint: str = "", place: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.key = key
        self.raw_hint = hint
        self.place = place

    def __str__(self) -> str:
        return self.worded(Caller())[0]

    @property
    def hint(self) -> str:
        """The next step, for a caller in Python."""
        return self.worded(Caller())[1]

    def worded(self, caller: Caller) -> tuple[str, str]:
        """Return the message with its place, and the hint, as this caller writes keys."""
        place = " and ".join(map(caller.name, self.key.split()))
        if self.place:
            place = f"{self.place}, key `{self.key}`" if self.key else self.place
        first, newline, rest = self.message.partition("\n")
        message = f"{first} - at {place}{newline}{rest}" if place else self.message

        def setting(found: re.Match[str]) -> str:
            key, value = found.groups()
            if self.place and key == self.key:
                return f"{key}: {value}" if value else key
            return caller.setting(key, value)

        return message, _SETTING.sub(setting, self.raw_hint)


class UsageError(DpdemoError, ValueError):
    """Raised before anything ran: a bad option, config or environment."""

    exit_code = 2


class RunError(DpdemoError):
    """Raised when something ran and failed, such as a model's forward."""


class PeerFailedError(RunError):
    """Raised in a rank of DDP when another rank failed first: that one reports it, this one nothing."""


class CheckFailedError(DpdemoError):
    """Raised when a check that the user asked for, such as `--fail-on`, finds something."""


@contextmanager
def about(key: str) -> Iterator[None]:
    """Name this key in errors of the block that name none."""
    try:
        yield
    except DpdemoError as error:
        error.key = error.key or key
        raise


@contextmanager
def placed(where: Mapping[str, str]) -> Iterator[None]:
    """Add to errors of the block the file and line where their key was set."""
    try:
        yield
    except DpdemoError as error:
        error.place = error.place or where.get(error.key, "")
        raise
