"""The options that commands share: one for each key of the config, and those of the output.

They are made from the config's own fields, so a new key is an option at once, with its description as help.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from dpdemo.config import Config, Where, make_config, read_values
from dpdemo.errors import UsageError
from dpdemo.gpus import parse_gpus
from dpdemo.strategy import OF_DDP_ALONE
from dpdemo.wording import at

Format = Literal["table", "transcript", "json", "csv", "markdown"]


@dataclass(frozen=True)
class Settings:
    """What the shared options said."""

    config: Config
    where: Where
    format: Format = "table"
    save: Path | None = None
    quiet: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class Output:
    """Which output options a command has: its formats, the endings of `--save`, and `--verbose`."""

    forms: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    is_grouped: bool = False

    def options(self) -> dict[str, tuple[Any, Any]]:
        """Make the options; `--quiet` is always one of them."""
        found: dict[str, tuple[Any, Any]] = {}
        if self.forms:
            form = typer.Option("--format", "-f", help="Form of the report.")
            found["format"] = (Annotated[Literal[self.forms], form], self.forms[0])
        if self.endings:
            text = f"Save the report: {' '.join(self.endings)}"
            found["save"] = (Annotated[Path | None, typer.Option("--save", metavar="FILE", help=text)], None)
        quiet = typer.Option("--quiet", "-q", help="No hints, no progress.")
        found["quiet"] = (Annotated[bool, quiet], False)
        if self.is_grouped:
            verbose = typer.Option("--verbose", "-v", help="Every batch by itself.")
            found["verbose"] = (Annotated[bool, verbose], False)
        return found


REPORT = Output(get_args(Format), (".svg", ".html", ".txt", ".json", ".csv", ".md"), is_grouped=True)
"""The output of a command that shows a SplitReport."""
_CONFIG_FILE = Annotated[
    str | None, typer.Option("--config", "-c", metavar="FILE", help="YAML file with any of the keys below.")
]


def takes_config(
    *, lone_number_is_count: bool, output: Output = REPORT, strategies: tuple[str, ...] = ("dp",)
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the shared options; it gets them as one `Settings`, its first argument.

    `lone_number_is_count` says how `--gpus 8` reads: as a count where no device is touched, else as an
    ordinal; `output` says which options of the output there are; `strategies` are those it knows.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        fields = _field_options(strategies, lone_number_is_count=lone_number_is_count)
        shared = {"config": (_CONFIG_FILE, None), **fields, **output.options()}

        def call(**given: Any) -> None:
            kept = {parameter.name: given.pop(parameter.name) for parameter in own}
            settings = _settings(given, output, strategies, lone_number_is_count=lone_number_is_count)
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


def _field_options(strategies: tuple[str, ...], *, lone_number_is_count: bool) -> dict[str, tuple[Any, None]]:
    without = set() if "ddp" in strategies else {"trace_sample", *OF_DDP_ALONE}
    if len(strategies) == 1:
        without.add("strategy")
    options = {}
    for name, field in Config.model_fields.items():
        if name in without:
            continue
        flag = f"--{name.replace('_', '-')}"
        if field.annotation is bool:
            flag = f"{flag}/--no-{name.replace('_', '-')}"
        metavar = "N" if _is_number(name) else None
        option = typer.Option(flag, metavar=metavar, help=_help(name, lone_number_is_count))
        options[name] = (Annotated[_option_type(name) | None, option], None)
    return options


def _option_type(name: str) -> Any:
    if Config.model_fields[name].annotation is bool:
        return bool
    words = _words(name)
    # numbers are read by `_number`, so that the config's own check speaks of them, as it does for a file
    return Literal[words] if words else str


def _words(name: str) -> tuple[str, ...]:
    """List the words that are a field's only values; none for any other field."""
    annotation = Config.model_fields[name].annotation
    kinds = [kind for kind in (get_args(annotation) or (annotation,)) if kind is not type(None)]
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return get_args(kinds[0]) if len(kinds) == 1 and get_origin(kinds[0]) is Literal else ()


def _is_number(name: str) -> bool:
    is_text = name in {"gpus", "model"} or _words(name)
    return Config.model_fields[name].annotation is not bool and not is_text


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _help(name: str, lone_number_is_count: bool) -> str:
    if name == "gpus":
        return (
            "A count, or ordinals such as 0,1,2."
            if lone_number_is_count
            else "Ordinals such as 0,1,2, or all."
        )
    return Config.model_fields[name].description or ""


def _settings(
    given: dict[str, Any], output: Output, strategies: tuple[str, ...], *, lone_number_is_count: bool
) -> Settings:
    shown = {name: given.pop(name) for name in output.options()}
    file = given.pop("config")
    if shown["quiet"] and shown.get("verbose"):
        raise UsageError("expected one of them, got both - at options `--quiet` and `--verbose`")
    if shown.get("save") is not None:
        from dpdemo.render import check_save_path

        check_save_path(shown["save"], output.endings)
    values, where = read_values(file) if file is not None else ({}, {})
    named = {name: value for name, value in given.items() if value is not None}
    for name, text in named.items():
        if name == "gpus":
            named[name] = parse_gpus(text, lone_number_is_count=lone_number_is_count)
        elif _is_number(name):
            named[name] = _number(text)
    if "dp" not in strategies:
        values["strategy"] = strategies[0]
    where |= {name: f"option `--{name.replace('_', '-')}`" for name in named}
    config = make_config({**values, **named}, where)
    if config.strategy not in strategies:
        raise UsageError(
            f"expected the strategy {' or '.join(strategies)}, which this command is about, got "
            f"{config.strategy} - {at('strategy', where)}",
            hint="leave `strategy` out",
        )
    return Settings(config, where, **shown)
