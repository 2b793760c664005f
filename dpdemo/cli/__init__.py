"""The command line: a file a command, each loaded only when it is the one that was asked for."""

import sys

from dpdemo.errors import DpdemoError, PeerFailedError


def main() -> None:
    """Run the program: the entry point of `dpdemo`."""
    try:
        from dpdemo.cli.group import app

        app(prog_name="dpdemo")
    except PeerFailedError as error:
        sys.exit(error.exit_code)  # the rank that failed first has said why
    except DpdemoError as error:
        from dpdemo.cli.streams import print_error

        print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
