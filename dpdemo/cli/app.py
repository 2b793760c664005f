"""The program's commands as data: `dpdemo --help` imports none of them, and a command only its own module."""

import importlib
import inspect
import os
import sys
from collections.abc import Collection, Sequence
from typing import Annotated, Any

import typer

from dpdemo.config.targets import looks_like_script

SPLIT, RUN, BEFORE, START = "See the split", "Run it", "Before you pay for GPUs", "To start"
COMMANDS = {
    "doctor": (SPLIT, "Check a model on one screen: even split, correctness, memory, speed-up, next step."),
    "simulate": (SPLIT, "Preview how every batch of an epoch is split, by arithmetic alone."),
    "page": (SPLIT, "Make an offline HTML page to try the split: sliders, four steps, a sample to follow."),
    "run": (RUN, "Run an epoch under torch's DataParallel or DDP, and show what hooks observed."),
    "exec": (RUN, "Run an unmodified program on virtual GPUs, then report how each call was split."),
    "explain": (RUN, "Take one batch through scatter, replicate, parallel_apply and gather, step by step."),
    "check": (BEFORE, "Find a model's pitfalls under DataParallel, on virtual GPUs, and how to fix each."),
    "memory": (BEFORE, "Predict the memory of each GPU in a training step, and the largest batch that fits."),
    "speedup": (BEFORE, "Predict when more GPUs pay: bytes, launches, break-even of DataParallel and DDP."),
    "init": (START, "Write a commented config and a model to start from: dpdemo.yaml and model.py."),
}  # fmt: skip
"""The panel of each command and the first sentence of its help; `dpdemo.cli.NAME.command` is the command."""
_HELP = {
    "help_option_names": ["-h", "--help"],
    "token_normalize_func": lambda option: option.replace("_", "-"),  # --batch_size, as the key is called
}


def words_of(typed: Sequence[str]) -> list[str]:
    """Return the command line with `doctor` in front of a bare TARGET, and `help simulate` as an option.

    Arguments after a script belong to the script.
    """
    words = list(typed)
    if words[:1] in (["help"], ["version"]):
        asked = ["doctor" if _is_target(word) else word for word in words[1:2]]
        words = [*asked, f"--{words[0]}"]
    first = next((word for word in words if word in COMMANDS or _is_target(word)), "")
    if _is_target(first):
        words = ["doctor", *words]
    script = next((place for place, word in enumerate(words) if looks_like_script(word)), 0)
    if words[:1] == ["doctor"] and script and "--" not in words:
        words.insert(script, "--")
    return words


def _is_target(word: str) -> bool:
    return ".py" in word or ":" in word


def build(words: Collection[str]) -> typer.Typer:
    """Build the program with the commands that are among the words; of the others only the summary.

    At the Tab key the words are the shell's, in a variable: bash's, or the one of the other shells.
    """
    if "_DPDEMO_COMPLETE" in os.environ:
        words = " ".join(os.environ.get(name, "") for name in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")).split()
    app = typer.Typer(
        rich_markup_mode="rich" if sys.stdout.isatty() else None,  # Rich is a third of the time of a help
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings=_HELP,
        epilog=_examples("simulate 8 --batch-size 65", "run --virtual --gpus 3", "model.py:Net"),
    )
    app.callback()(_root)
    for name, (panel, summary) in COMMANDS.items():
        how: dict[str, Any] = {"short_help": summary, "rich_help_panel": panel, "context_settings": _HELP}
        function: Any = _unloaded
        if name in words:
            module = importlib.import_module(f"dpdemo.cli.{name}")
            how["context_settings"] = {**_HELP, **getattr(module, "CONTEXT", {})}
            how["epilog"] = _examples(*module.EXAMPLES)
            function = module.command
            paragraphs = inspect.cleandoc(function.__doc__).split("\n\n")
            how["help"] = "\n\n".join(" ".join(text.split()) for text in paragraphs)
        app.command(name, **how)(function)
    return app


def _examples(*lines: str) -> str:
    return "\n".join(["\b", "Examples:", *(f"  dpdemo {line}" for line in lines)])  # \b: not rewrapped


def _unloaded() -> None:
    """Stand in for a command that was not typed."""


def _print_version(value: bool) -> None:
    if value:
        from dpdemo import __version__

        typer.echo(f"dpdemo {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """See, run and check how PyTorch splits a batch over GPUs, on any machine."""
    del version
