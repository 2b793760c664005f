"""The options that commands share: the common keys of the config, `--set` for all keys, and the output.

The options are made from the config's own fields, with a field's description as help.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dpdemo.cli.completion import keys, models
from dpdemo.cli.edge import OPTIONS_OF_CONFIG
from dpdemo.config.fields import KEYS, Config
from dpdemo.config.kinds import FLAG
from dpdemo.config.load import make_config, read_values
from dpdemo.config.weights import is_weighted, weights_key
from dpdemo.errors import UsageError, about, placed
from dpdemo.saving import check_save_path, endings
from dpdemo.wording import show

OF_WEIGHTS = ("weights", "chunks")

SAVE_HELP = "Save it, too, several times if need be:"


def target_argument(text: str) -> Any:
    """Make the argument TARGET, with its help; the Tab key offers models."""
    return typer.Argument(metavar="TARGET", help=text, show_default=False, autocompletion=models)


@dataclass(frozen=True)
class Settings:
    """What the shared options said; `file` is that of `--config`."""

    config: Config
    where: Mapping[str, str]
    format: str = "table"
    save: tuple[Path, ...] = ()
    quiet: bool = False
    verbose: bool = False
    file: str | None = None
    more: Any = None


@dataclass(frozen=True)
class More:
    """Options of one command that decide keys of the config: each with its type and its default.

    `read` gets their values and the keys that are set, and returns `Settings.more` and the keys.
    """

    options: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    read: Callable[[dict[str, Any], dict[str, Any]], tuple[Any, dict[str, Any]]] = lambda _, keys: (
        None,
        keys,
    )


@dataclass(frozen=True)
class Output:
    """Which output options a command has: its formats; these make the endings of `--save`."""

    forms: tuple[str, ...] = ()
    is_grouped: bool = False

    @property
    def endings(self) -> tuple[str, ...]:
        """The endings that `--save` knows."""
        return endings(self.forms)

    def options(self) -> dict[str, tuple[Any, Any]]:
        """Make the options; `--quiet` is always one of them."""
        found: dict[str, tuple[Any, Any]] = {}
        if self.forms:
            form = typer.Option("--format", "-f", help="Form of the report.")
            found["format"] = (Annotated[Literal[self.forms], form], self.forms[0])
            save = typer.Option("--save", metavar="FILE", help=f"{SAVE_HELP} {' '.join(self.endings)}")
            found["save"] = (Annotated[list[Path] | None, save], None)
        quiet = typer.Option("--quiet", "-q", help="No hints, no progress.")
        found["quiet"] = (Annotated[bool, quiet], False)
        if self.is_grouped:
            verbose = typer.Option("--verbose", "-v", help="Every batch by itself.")
            found["verbose"] = (Annotated[bool, verbose], False)
        return found


REPORT = Output(("table", "transcript", "json", "csv", "markdown"), is_grouped=True)
"""The output of a command that shows a SplitReport."""
PLAIN = Output(("table", "json", "csv", "markdown"))
"""The output of a command that shows any other report."""
_CONFIG_FILE = Annotated[
    str | None, typer.Option("--config", "-c", metavar="FILE", help="YAML file with any of these keys.")
]
_SET = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set any key of the config, such as seed=1 or dim=1.",
        autocompletion=keys,
    ),
]
_GPUS_HELP = "3 is the first three; 0,2 are ordinals; 3, is one; 0-3 is a range; or all."
_GPUS_ARGUMENT = Annotated[str | None, typer.Argument(metavar="GPUS", help="The same as --gpus.")]


def takes_config(  # noqa: PLR0913 - commands differ in all of these
    *,
    output: Output = REPORT,
    strategies: tuple[str, ...] = ("dp",),
    has_gpus_argument: bool = False,
    gpus_help: str = _GPUS_HELP,
    has_weights: bool = True,
    more: More = More(),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the shared options; it gets them as one `Settings`, its first argument.

    `output` lists its options of the output, `strategies` those that the command knows; with
    `has_gpus_argument` the GPUs may be an argument too, as in `dpdemo simulate 8`; `gpus_help` is the help of
    `--gpus` where a list has numbers of GPUs, not ordinals. A command that has no weights cuts as torch does.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        fields = _field_options(strategies, gpus_help, has_weights=has_weights)
        argument = {"gpus_argument": (_GPUS_ARGUMENT, None)} if has_gpus_argument else {}
        shared = {
            **argument,
            "config": (_CONFIG_FILE, None),
            **fields,
            "set_keys": (_SET, None),
            **more.options,
            **output.options(),
        }

        def call(**given: Any) -> None:
            kept = {parameter.name: given.pop(parameter.name) for parameter in own}
            settings = _settings(given, output, strategies, more)
            if not has_weights:
                _expect_torchs_chunks(settings)
            with placed(settings.where):
                command(settings, **kept)

        parameters = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in shared.items()
        ]
        signature = inspect.Signature([*(p.replace(kind=p.KEYWORD_ONLY) for p in own), *parameters])
        vars(call)["__signature__"] = signature  # where inspect looks first
        call.__annotations__ = {
            name: parameter.annotation for name, parameter in signature.parameters.items()
        }
        call.__doc__ = command.__doc__
        call.__name__ = command.__name__
        return call

    return decorate


def _expect_torchs_chunks(settings: Settings) -> None:
    key = weights_key(settings.config)
    if is_weighted(settings.config):
        raise UsageError(
            f"expected a batch that is cut as torch does, which this command is about, got `{key}`",
            key=key,
            hint=f"leave `{key}` out",
        )


def _field_options(
    strategies: tuple[str, ...], gpus_help: str, *, has_weights: bool
) -> dict[str, tuple[Any, None]]:
    without = {*(() if has_weights else OF_WEIGHTS), *(("strategy",) if len(strategies) == 1 else ())}
    options = {}
    for name in OPTIONS_OF_CONFIG:
        if name in without:
            continue
        known = KEYS[name]
        flag = f"--{name.replace('_', '-')}"
        if known.kind is FLAG:
            flag = f"{flag}/--no-{name.replace('_', '-')}"
        metavar = "N,N,..." if name in OF_WEIGHTS else "N" if known.kind.most and name != "gpus" else None
        text = gpus_help if name == "gpus" else f"{known.help}{_default(name)}"
        offered = models if name == "model" else None
        flags = (flag, "-g") if name == "gpus" else (flag,)
        option = typer.Option(*flags, metavar=metavar, help=text, autocompletion=offered)
        kind = bool if known.kind is FLAG else Literal[known.kind.words] if known.kind.words else str
        options[name] = (Annotated[kind | None, option], None)
    return options


def _default(name: str) -> str:
    """Say what a key is when left out: the option itself has no default, so that a file's value counts."""
    default = KEYS[name].default
    if default is None:
        return ""
    return f" [default: {f'no-{name}'.replace('_', '-') if default is False else default}]"


def _read_set(texts: Sequence[str], named: Mapping[str, Any]) -> dict[str, Any]:
    """Read the values of `--set`."""
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        key = name.strip().replace("-", "_")
        if not sign:
            raise UsageError(f"expected KEY=VALUE, got {show(text)}", key="set", hint="write --set seed=1")
        if key in named or key in found:
            raise UsageError(f"expected `{key}` once, got it twice", key="set")
        found[key] = _value(key, value.strip())
    return found


def _value(name: str, text: Any) -> Any:
    """Read the text of an option or of `--set`; the config's own check refuses what has the wrong type."""
    with about(name):
        return KEYS[name].kind.read(text) if name in KEYS and isinstance(text, str) else text


def _settings(given: dict[str, Any], output: Output, strategies: tuple[str, ...], more: More) -> Settings:
    own = {name: given.pop(name) for name in more.options}
    shown = {name: given.pop(name) for name in output.options()}
    argument = given.pop("gpus_argument", None)
    if argument is not None and given["gpus"] is not None:
        raise UsageError("expected one of them, got both", key="gpus_argument gpus")
    given["gpus"] = argument if argument is not None else given["gpus"]
    file, keys_set = given.pop("config"), given.pop("set_keys") or ()
    if shown["quiet"] and shown.get("verbose"):
        raise UsageError("expected one of them, got both", key="quiet verbose")
    if output.forms:
        shown["save"] = tuple(shown["save"] or ())
    for path in shown.get("save", ()):
        check_save_path(path, output.endings, read=[file] if file else [])
    values, where = read_values(file) if file is not None else ({}, {})
    named = {name: _value(name, text) for name, text in given.items() if text is not None}
    named |= _read_set(keys_set, named)
    where = {key: line for key, line in where.items() if key not in named}
    found, chosen = more.read(own, {**values, **named})
    config = make_config(chosen, where)
    if config.strategy not in strategies:
        raise UsageError(
            f"expected the strategy {' or '.join(strategies)}, which this command is about, got "
            f"{config.strategy}",
            key="strategy",
            hint="leave `strategy` out",
        )
    return Settings(config, where, file=file, more=found, **shown)
