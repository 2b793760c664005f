"""The project's exceptions.

DpdemoError              whatever goes wrong that a user can act on
├── UsageError           bad usage or config: nothing was run (exit code 2)
├── RunError             it ran and failed (exit code 1)
│   └── PeerFailedError  a rank stopped because of another one, which says why itself (1)
└── CheckFailedError     a gate that the user set was not passed (exit code 1)

Ctrl-C during a run is a KeyboardInterrupt that carries what was done before it: `running/interrupts.py`.

A message says what was expected, what was got and where; `hint` says what to do next.
"""


class DpdemoError(Exception):
    """The base of every error that dpdemo raises for a user's mistake or a failed run."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(DpdemoError, ValueError):
    """Raised before anything ran: a bad option, config or environment."""

    exit_code = 2


class RunError(DpdemoError):
    """Raised when something ran and failed, such as a model's forward."""


class PeerFailedError(RunError):
    """Raised in a rank of DDP when another one failed first: that one tells the user, this one is silent."""


class CheckFailedError(DpdemoError):
    """Raised when a check that the user asked for, such as `--fail-on`, finds something."""
