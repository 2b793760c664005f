"""The streams of the command line: reports on stdout and in files, errors and hints on stderr.

Errors are worded for it: options by name, keys of a file by its line.
"""

import errno
import gc
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dpdemo.errors import Caller, DpdemoError, RunError, UsageError
from dpdemo.files import current_folder
from dpdemo.wording import fit, harmless, show

if TYPE_CHECKING:
    from dpdemo.results.report import Report

READER_LEFT = 141
"""The exit code that a shell reports for a tool that SIGPIPE ended: 128 + 13.

`head` closes the pipe once it has its lines, which is not an error. Typer and Rich exit with 1, which here
means a failed run or a finding; a script with `set -o pipefail` must tell these apart. The signal itself
stays ignored, Python's default: otherwise a closed socket would end a rank of DDP or the program of `exec`.
"""
_REFUSED = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EINVAL}
_ARGUMENTS = {"target": "TARGET", "gpus_argument": "GPUS", "program": "SCRIPT", "folder": "FOLDER"}
_FLAGS = {"form": "format", "list_rules": "list", "traceback_of": "traceback"}
"""Parameters whose option has another name."""
_COLOURS = {"error": typer.colors.RED, "hint": typer.colors.CYAN}


class Edge(Caller):
    """The command line as a caller.

    Attributes:
        where: the file and line of each key that was set in a file.
        names: the arguments used for keys: `model` may be TARGET.
        typed_in_set: the keys that were typed in `--set`.
        parameters: those of the command; None before they are known.
        command: its name; "" before it is known.

    """

    def __init__(self) -> None:
        self.where: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.typed_in_set: set[str] = set()
        self.parameters: Collection[str] | None = None
        self.command = ""

    def name(self, key: str) -> str:
        """Name a key: ``option `--gpus` ``, ``option `--set seed` `` or `argument TARGET`."""
        key = self.names.get(key, key)
        return f"argument {_ARGUMENTS[key]}" if key in _ARGUMENTS else f"option `{self._option(key)}`"

    def setting(self, key: str, value: str) -> str:
        """Write `--gpus 0,1`, `--set seed=1` or `--drop-last`."""
        if value.startswith("["):
            value = value.strip("[]").replace(" ", "")
            value += "" if "," in value else ","  # `3,` is a list of one
        option = self._option(key)
        if not value or (value == "true" and not option.startswith("--set ")):
            return option
        return f"{option}{'=' if option.startswith('--set ') else ' '}{value}"

    def _option(self, key: str) -> str:
        from dpdemo.cli.options import CONFIG_KEYS
        from dpdemo.config.fields import KEYS

        known = CONFIG_KEYS if self.parameters is None else self.parameters
        is_set = key in KEYS and (key not in known or key in self.typed_in_set)
        return f"--set {key}" if is_set else f"--{_FLAGS.get(key, key).replace('_', '-')}"


def print_report(report: "Report", form: str | None, paths: Sequence[Path] | None, *, quiet: bool) -> None:
    """Save a report under every path, then write it to stdout.

    Without a form it is on stdout already. The files come first: the reader of stdout may leave before the
    end, and wants the files nevertheless.
    """
    for path in paths or ():
        report.save(path)
        if not quiet:
            print_hint(f"saved to {path}")
    if form is not None:
        report.write(form)
    gc.freeze()  # only the end is left, where Python would look through all of torch for garbage


def print_error(error: DpdemoError, edge: Edge | None = None) -> None:
    """Write an error and its next step to stderr."""
    edge = edge or Edge()
    error.place = error.place or edge.where.get(error.key, "")
    message, hint = error.worded(edge)
    if isinstance(error, UsageError) and edge.command:
        hint = hint or f"`dpdemo {edge.command} --help` describes what it takes"
    _print("error", message)
    if hint:
        print_hint(hint)


def print_hint(text: str) -> None:
    """Write a next step to stderr."""
    _print("hint", text)


def _print(label: str, text: str) -> None:
    line = fit(harmless(text), sys.stderr.encoding or "utf-8")
    # echo drops the colour by itself where stderr is not a terminal; NO_COLOR is ours to honour
    colour = False if os.environ.get("NO_COLOR") else None
    typer.echo(f"{typer.style(label, fg=_COLOURS[label], bold=True)}: {line}", err=True, color=colour)


def as_ours(error: Exception) -> DpdemoError | None:
    """Turn an error of a path or of memory into one of ours; None for anything else."""
    if isinstance(error, FileNotFoundError) and error.filename is None:
        try:
            current_folder()
        except UsageError as ours:
            return ours
    if isinstance(error, OSError):
        if error.filename is None:
            return None
        got = f"{show(os.fsdecode(error.filename))}: {error.strerror}"
        return UsageError(f"expected a path that can be used, got {got}", hint="name another place")
    if isinstance(error, ValueError) and str(error).startswith("embedded null "):
        return UsageError("expected a path, got one with a zero byte", hint="name another place")
    from dpdemo.models.failure import out_of_memory

    return out_of_memory(error, "do this here")


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
