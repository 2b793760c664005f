"""The group of commands: their names and summaries as data, so that `dpdemo --help` imports none of them."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from dpdemo.cli.help import Command, help_page, set_out
from dpdemo.cli.startup import no_collections
from dpdemo.cli.stdout import writing_out
from dpdemo.errors import UsageError
from dpdemo.wording import show

HELP = ["-h", "--help"]
_ELSEWHERE = {
    "split": ["simulate"],
    "preview": ["simulate"],
    "lint": ["check"],
    "train": ["exec"],
    "new": ["init"],
    "benchmark": ["speedup"],
    "mem": ["memory"],
}
"""What a command may be called by people who do not know its name."""
COMMANDS = {
    "doctor": "Answer on one screen: is the split even, is it right, does it fit, does it pay, what next.",
    "simulate": "Preview how every batch of an epoch is split, by arithmetic alone.",
    "sweep": "Map balance, loss weight or idle GPUs over batch sizes and numbers of GPUs.",
    "run": "Run an epoch under torch's DataParallel or DistributedDataParallel, and show what was seen.",
    "check": "Find a model's pitfalls under DataParallel, on virtual GPUs, and say how to fix each.",
    "memory": "Predict what each GPU must hold for a training step, and the largest batch that fits.",
    "speedup": "Predict whether more GPUs pay: bytes and launches of a step, the break-even, the speed-up.",
    "exec": "Run an unmodified program on virtual GPUs, then report how each DataParallel call was split.",
    "explain": "Take one batch through scatter, replicate, parallel_apply and gather, step by step.",
    "init": "Write a commented config and a model to start from: dpdemo.yaml and model.py.",
    "page": "Make one offline HTML page to try the split: sliders, the four steps, a sample to follow.",
}
GROUPS = {
    "See the split": ("doctor", "simulate", "sweep", "page"),
    "Run it": ("run", "exec", "explain"),
    "Before you pay for GPUs": ("check", "memory", "speedup"),
    "To start": ("init",),
}
GONE = {
    "compare": "`dpdemo simulate --strategy ddp` beside `dpdemo simulate`",
    "record": "`dpdemo run --virtual`, which shows what DataParallel did",
    "replay": "`dpdemo run --virtual` beside `dpdemo run`",
    "devices": "`dpdemo run`, which warns of GPUs that are not balanced",
    "schema": "`--format json`, and the page docs/json.md for what stands in it",
}
"""What to use in place of each command of old."""
FIRST = ("simulate 8 --batch-size 65", "run --virtual --gpus 3", "model.py:Net")


class LazyGroup(TyperGroup):
    """Finds a command `name` in the module `dpdemo.cli.name`, when it is asked for."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options, which is where --help and --version print."""
        with writing_out(), _in_our_words(), no_collections():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and write all of its output."""
        with writing_out(), _in_our_words():
            try:
                return super().invoke(ctx)
            finally:
                if ctx.invoked_subcommand != "exec":  # whose stdout is the program's
                    sys.stdout.flush()

    def list_commands(self, ctx: Any) -> list[str]:
        """List the commands in the order of the table."""
        del ctx
        return list(COMMANDS)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read `dpdemo --gpus 2 model.py:Net` as doctor's: its options, before its target."""
        known = {name for param in self.get_params(ctx) for name in param.opts}
        is_option = bool(args) and args[0].startswith("-") and args[0] not in known
        if is_option and not COMMANDS.keys() & {*args} and any(map(_is_target, args)):
            args = ["doctor", *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command's module and make its command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            with no_collections():
                module = importlib.import_module(f"dpdemo.cli.{cmd_name}")
            command: Any = typer.main.get_command(module.app)
            command.context_settings = {**(command.context_settings or {}), "help_option_names": HELP}
            command.context_settings["token_normalize_func"] = _with_dashes
            set_out(command)
            self.commands[cmd_name] = command
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Read `help [COMMAND]` and `version` as --help and --version; suggest for a misspelt command."""
        match args:
            case ["help"]:
                typer.echo(ctx.get_help())
                ctx.exit()
            case ["version"]:
                _print_version(True)
            case ["help", name, *_] if name in COMMANDS:
                args = [name, "--help"]
            case ["help", name, *_]:
                raise _unknown_command(name)
            case [name, *_] if name not in COMMANDS and _is_target(name):
                args = ["doctor", *args]
            case [name, *_] if name not in COMMANDS and not name.startswith("-"):
                raise _unknown_command(name)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the tables of commands without loading them."""
        lines = [param.get_help_record(ctx) for param in self.get_params(ctx)]
        groups = [(title, [(name, COMMANDS[name]) for name in names]) for title, names in GROUPS.items()]
        help_page(self, ctx, formatter, [*groups, ("Options", list(filter(None, lines)))], FIRST)


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except TyperException as error:
        if not hasattr(error, "format_message") or type(error).__name__ == "NoArgsIsHelpError":
            raise  # `dpdemo` alone shows the help
        from dpdemo.cli.usage import usage_error

        raise usage_error(error) from None


def _with_dashes(option: str) -> str:
    """Read `--batch_size`, as the key of the config is called, as `--batch-size`."""
    return option.replace("_", "-")


def _is_target(name: str) -> bool:
    return ".py" in name or ":" in name


def _unknown_command(name: str) -> UsageError:
    import difflib

    if name in GONE:
        return UsageError(f"the command `{name}` is gone: use {GONE[name]}")
    meant = [command for command in COMMANDS if command.startswith(name)] + _ELSEWHERE.get(name, [])
    near = meant or difflib.get_close_matches(name, COMMANDS, n=1)
    return UsageError(
        f"expected a command, got {show(name)}",
        hint=f"did you mean `dpdemo {near[0]}`?" if near else f"the commands are {', '.join(COMMANDS)}",
    )


# Typer's own Rich help would cost a third of a simulate's time, on every --help in a pipe: see cli/help.py.
app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": HELP},
)


def _print_version(value: bool) -> None:
    if value:
        from dpdemo import __version__

        typer.echo(f"dpdemo {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """See, run and check how PyTorch splits a batch over GPUs, on any machine."""
    del version


class _App(typer.Typer):
    """An app whose commands have the help of `cli/help.py`."""

    def command(self, *args: Any, **kwargs: Any) -> Any:
        """Register a command."""
        return super().command(*args, **{"cls": Command, **kwargs})


def command_app() -> typer.Typer:
    """Make the Typer that a command's module registers its one command with."""
    return _App(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
