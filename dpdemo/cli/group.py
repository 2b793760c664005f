"""The group of commands: their names and summaries as data, so that `dpdemo --help` imports none of them."""

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dpdemo.cli.startup import no_collections
from dpdemo.cli.stdout import writing_out

COMMANDS = {
    "simulate": "Preview how every batch of an epoch is split, by arithmetic alone.",
    "run": "Run an epoch under torch's DataParallel or DistributedDataParallel, and show what was seen.",
    "check": "Find a model's pitfalls under DataParallel, on virtual GPUs, and say how to fix each.",
    "memory": "Predict what each GPU must hold for a training step, and the largest batch that fits.",
    "exec": "Run an unmodified program on virtual GPUs, then report how each DataParallel call was split.",
    "explain": "Take one batch through scatter, replicate, parallel_apply and gather, step by step.",
    "record": "Record what DataParallel does, forward and backward, for `dpdemo replay` to repeat.",
    "replay": "Repeat a recording and say identical, equal to round-off, or where it first differs.",
    "compare": "Compare DataParallel with DistributedDataParallel for one config.",
    "devices": "List the visible GPUs and apply DataParallel's balance rule.",
    "schema": "Print the JSON schema of the config, of a report, or of what another command writes.",
}


class LazyGroup(TyperGroup):
    """Finds a command `name` in the module `dpdemo.cli.name`, when it is asked for."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options, which is where --help and --version print."""
        with writing_out():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and write all of its output."""
        with writing_out():
            try:
                return super().invoke(ctx)
            finally:
                if ctx.invoked_subcommand != "exec":  # whose stdout is the program's
                    sys.stdout.flush()

    def list_commands(self, ctx: Any) -> list[str]:
        """List the commands in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command's module and make its command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            with no_collections():
                module = importlib.import_module(f"dpdemo.cli.{cmd_name}")
            self.commands[cmd_name] = typer.main.get_command(module.app)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Suggest the nearest command for a misspelt one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"No such command '{args[0]}'." + (f" Did you mean '{near[0]}'?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of commands without loading them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


# Plain help: the Rich one would cost a third of a simulate's time, on every error and every --help.
app = typer.Typer(cls=LazyGroup, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)


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


def command_app() -> typer.Typer:
    """Make the Typer that a command's module registers its one command with."""
    return typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
