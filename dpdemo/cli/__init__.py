"""The command line: a file per command, each imported only when it is the one that was typed."""

import os
import sys
import warnings
from pathlib import Path

from dpdemo.collecting import no_collections
from dpdemo.errors import DpdemoError, PeerFailedError


def main() -> None:
    """Run the program: the entry point of `dpdemo`."""
    try:
        _open_streams()
        # torch warns on import if NumPy is not installed, and nothing here needs it
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        _run()
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemExit as ended:
        if "RANK" in os.environ and "dpdemo.epochs.ddp.rank" in sys.modules:
            from dpdemo.ranks.processes import exit_at_once

            exit_at_once(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        raise


def _open_streams() -> None:
    """Open the streams that the shell closed (`>&-`), leading nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - for as long as we live


def _run() -> None:
    with no_collections():
        from dpdemo.cli.app import COMMANDS, build, words_of
        from dpdemo.cli.edge import Edge, as_ours, print_error, writing_out

    edge = Edge()
    try:
        words = words_of(sys.argv[1:])
        edge.command = next((word for word in words[:1] if word in COMMANDS), "")
        with no_collections():
            app = build(words)
        with writing_out(flush=words[:1] != ["exec"]):  # whose stdout is the program's
            app(words, prog_name="dpdemo", obj=edge)
    except PeerFailedError as error:
        sys.exit(error.exit_code)  # the rank that failed first has reported why
    except Exception as error:
        ours = error if isinstance(error, DpdemoError) else as_ours(error)
        if ours is None:
            raise
        print_error(ours, edge)
        sys.exit(ours.exit_code)
