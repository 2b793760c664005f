"""The command line: a file per command, each loaded only when it is the one that was asked for."""

import os
import sys
import warnings
from pathlib import Path

from dpdemo.cli.startup import no_collections
from dpdemo.errors import DpdemoError, PeerFailedError


def main() -> None:
    """Run the program: the entry point of `dpdemo`."""
    try:
        _open_streams()
        # torch says so on import where NumPy is not installed, and nothing here needs it
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        _run()
    except KeyboardInterrupt:  # before _run was under way, or when it was over
        sys.exit(130)
    except SystemExit as ended:
        if "RANK" in os.environ and "dpdemo.running.ddp.launch" in sys.modules:
            from dpdemo.running.ddp.worker import exit_at_once

            exit_at_once(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        raise


def _open_streams() -> None:
    """Let the streams that were closed by the shell (`>&-`) lead nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - for as long as we live


def _run() -> None:
    try:
        with no_collections():
            from dpdemo.cli.group import app

        app(prog_name="dpdemo")
    except PeerFailedError as error:
        sys.exit(error.exit_code)  # the rank that failed first has said why
    except DpdemoError as error:
        from dpdemo.cli.edge import print_error

        print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        from dpdemo.cli.edge import print_error
        from dpdemo.cli.mishaps import as_ours

        ours = as_ours(error)
        if ours is None:
            raise
        print_error(ours)
        sys.exit(ours.exit_code)
