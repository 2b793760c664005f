"""The options that commands share, each with one name, one help text and one panel; and reading them.

To add a shared option, add an alias here and a parameter of that type to the commands that take it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dpdemo.bytesize import capacities, exact_size, parse_size, size
from dpdemo.cli import completion
from dpdemo.cli.edge import OPTIONS_OF_CONFIG, Edge, print_hint
from dpdemo.config.fields import INT64_MAX, KEYS, Config
from dpdemo.config.kinds import FLAG
from dpdemo.config.load import make_config, read_values
from dpdemo.config.targets import is_target
from dpdemo.config.weights import is_weighted, weights_key
from dpdemo.errors import UsageError, about
from dpdemo.saving import check_save_path, endings
from dpdemo.wording import show

GPUS, DATA, MODEL, CHECKS, OUTPUT = "GPUs", "Data", "Model", "Checks", "Output"
PLAIN_FORMS = ("table", "json", "csv", "markdown")
CHECK_FORMS = ("text", "json", "csv", "github", "sarif", "markdown")


def option(flags: str, panel: str, text: str, metavar: str | None = None, **more: Any) -> Any:
    """Make an option, such as `--gpus -g`; the case of its choices does not matter."""
    more = {"rich_help_panel": panel, "help": text, "metavar": metavar, "case_sensitive": False, **more}
    return typer.Option(*flags.split(), **more)


def _key(name: str, panel: str, metavar: str | None = None, short: str = "", **more: Any) -> Any:
    """Make the option of a config key, with the key's help; the config checks its value."""
    known, flag = KEYS[name], name.replace("_", "-")
    flags = f"--{flag}/--no-{flag}" if known.kind is FLAG else f"--{flag} {short}"
    text = known.help if known.default in {None, False} else f"{known.help} (default: {known.default})"
    return option(flags, panel, text, metavar, **more)


def _checked_size(param: typer.CallbackParam, value: int | None) -> int | None:
    if value is not None and not 1 <= value <= INT64_MAX:
        raise UsageError(
            f"expected a whole number from 1 to {INT64_MAX}, got {show(value)}", key=str(param.name)
        )
    return value


SIZE: dict[str, Any] = {"callback": _checked_size}
"""Bounds an option that is a size."""
_SAVE = "Also write the report to FILE (repeatable):"
_FORM = "Format of the report."

# ---- keys of the config ----
ConfigFile = Annotated[
    str | None, option("--config -c", MODEL, "YAML file with any keys of the config.", "FILE")
]
Gpus = Annotated[str | None, _key("gpus", GPUS, "GPUS", "-g")]
GpusArgument = Annotated[str | None, typer.Argument(metavar="GPUS", help="The same as --gpus.")]
Strategy = Annotated[Literal["dp", "ddp"] | None, _key("strategy", GPUS)]
Weights = Annotated[str | None, _key("weights", GPUS, "N,N,...")]
Chunks = Annotated[str | None, _key("chunks", GPUS, "ROWS,ROWS,...")]
BatchSize = Annotated[int | None, _key("batch_size", DATA, "SAMPLES")]
DataSize = Annotated[int | None, _key("data_size", DATA, "SAMPLES")]
DropLast = Annotated[bool | None, _key("drop_last", DATA)]
Model = Annotated[str | None, _key("model", MODEL, "MODEL", autocompletion=completion.models)]
SetKeys = Annotated[
    list[str] | None,
    option(
        "--set",
        MODEL,
        "Set any key of the config, such as seed=1 or dim=1 (repeatable).",
        "KEY=VALUE",
        autocompletion=completion.keys,
    ),
]

# ---- output ----
SplitForm = Annotated[
    Literal["table", "transcript", "json", "csv", "markdown"], option("--format -f", OUTPUT, _FORM)
]
PlainForm = Annotated[Literal["table", "json", "csv", "markdown"], option("--format -f", OUTPUT, _FORM)]
CheckForm = Annotated[
    Literal["text", "json", "csv", "github", "sarif", "markdown"], option("--format -f", OUTPUT, _FORM)
]
SavePlain = Annotated[
    list[Path] | None, option("--save", OUTPUT, f"{_SAVE} {' '.join(endings(PLAIN_FORMS))}", "FILE")
]
SaveCheck = Annotated[
    list[Path] | None, option("--save", OUTPUT, f"{_SAVE} {' '.join(endings(CHECK_FORMS))}", "FILE")
]
Quiet = Annotated[bool, option("--quiet -q", OUTPUT, "No hints, no progress.")]
Verbose = Annotated[bool, option("--verbose -v", OUTPUT, "List every batch separately.")]

# ---- GPUs and models of several commands ----
TARGET_HELP = (
    "The model: model.py:Net, pkg.mod:Net, transformers:gpt2-xl, torchvision:resnet50, timm:..., or a "
    "built-in name."
)
Target = Annotated[str, typer.Argument(metavar="TARGET", help=TARGET_HELP, autocompletion=completion.models)]
Count = Annotated[str | None, option("--gpus -g", GPUS, "Number of virtual GPUs. (default: 4)", "N")]
Virtual = Annotated[bool, option("--virtual", GPUS, "Use virtual GPUs: no GPU is needed.")]
Card = Annotated[
    str | None,
    option(
        "--gpu",
        GPUS,
        "The card, for its memory and CUDA's own share of it: A100-80GB, T4, RTX3090.",
        "CARD",
        autocompletion=completion.cards,
    ),
]
GpuMemory = Annotated[
    str | None,
    option(
        "--gpu-memory",
        GPUS,
        "Memory of each GPU, or a list with one size for each: 24GiB,24GiB,80GiB.",
        "SIZE",
    ),
]
Link = Annotated[
    str | None,
    option(
        "--link",
        GPUS,
        "Connection of the GPUs: pcie3, pcie4, pcie5, nvlink2, nvlink3, nvlink4, nvlink-3090, no-p2p.",
        "NAME",
        autocompletion=completion.links,
    ),
]
Steps = Annotated[
    list[str] | None,
    option(
        "--one-gpu-step",
        GPUS,
        "A measured training step on one GPU, perhaps with its rows: 49ms, 49ms@8 (repeatable).",
        "TIME[@ROWS]",
    ),
]
InputSpec = Annotated[
    list[str] | None,
    option(
        "--input",
        DATA,
        "One for each argument of the model: 32x128, mask=32x128:bool, ids=32x16:int64<1000. By default "
        "inferred from the first layer.",
        "[NAME=]SHAPE[:TYPE[<N]]",
    ),
]
InputsFrom = Annotated[
    str | None,
    option("--inputs", DATA, "Function that returns the inputs for a batch size.", "pkg.mod:function"),
]
Rows = Annotated[int | None, option("--batch-size", DATA, "Rows of the batch. (default: 32)", "ROWS", **SIZE)]
Loss = Annotated[
    str | None,
    option(
        "--loss",
        MODEL,
        "mean, mse, cross-entropy, output.loss, or a function of the output, pkg.mod:function. (default: "
        "output.loss if there is one, else mean)",
        "LOSS",
        autocompletion=completion.losses,
    ),
]
Select = Annotated[
    str,
    option(
        "--select",
        CHECKS,
        "Apply only these rules: codes or their beginnings, DP2,DP305.",
        "CODES",
        autocompletion=completion.rules,
    ),
]
Ignore = Annotated[
    str,
    option(
        "--ignore",
        CHECKS,
        "Leave out these rules: codes or their beginnings.",
        "CODES",
        autocompletion=completion.rules,
    ),
]


@dataclass(frozen=True)
class Settings:
    """The checked config of a command, and the files of its report."""

    config: Config
    save: tuple[Path, ...] = ()


def exclusive(**given: object) -> None:
    """Refuse two options that exclude each other.

    Raises:
        UsageError: if more than one of them is given.

    """
    named = [name for name, value in given.items() if value not in (None, False, "", [])]
    if len(named) > 1:
        raise UsageError("expected one of them, got both", key=" ".join(named[:2]))


def read_settings(
    ctx: typer.Context,
    forms: Sequence[str] = (),
    *,
    strategies: Sequence[str] = ("dp",),
    below: Mapping[str, object] | None = None,
    above: Mapping[str, object] | None = None,
) -> Settings:
    """Read the shared options of a command, by the names of its parameters.

    Args:
        ctx: the command's parameters.
        forms: the formats of its report, which decide on the endings of `--save`.
        strategies: those that it knows.
        below: config keys that the command chooses, unless a file or an option does.
        above: config keys that the command chooses, whatever a file or an option says.

    Raises:
        UsageError: for anything that is not valid.

    """
    given, edge = ctx.params, ctx.find_object(Edge) or Edge()
    exclusive(gpus_argument=given.get("gpus_argument"), gpus=given.get("gpus"))
    exclusive(target=given.get("target"), model=given.get("model"))
    exclusive(quiet=given["quiet"], verbose=given.get("verbose"))
    file = given["config"]
    save = tuple(given.get("save") or ())
    for path in save:
        check_save_path(path, endings(forms), read=[file] if file else [])
    values, where = read_values(file) if file is not None else ({}, {})
    typed = {**_typed_keys(given), **(above or {})}
    edge.where = {key: line for key, line in where.items() if key not in typed}
    if given.get("target"):
        edge.names["model"] = "target"
    config = make_config({**(below or {}), **values, **typed}, edge.where)
    if config.strategy not in strategies:
        raise UsageError(
            f"this command does not support the strategy {config.strategy}",
            key="strategy",
            hint="leave {strategy=} out",
        )
    if is_weighted(config) and "weights" not in given:
        key = weights_key(config)
        raise UsageError(f"this command does not support `{key}`", key=key, hint=f"leave {{{key}=}} out")
    return Settings(config, save)


def _typed_keys(given: Mapping[str, Any]) -> dict[str, object]:
    """Read the options of config keys, the arguments that stand for them, and `--set`."""
    typed = {name: given[name] for name in OPTIONS_OF_CONFIG if given.get(name) is not None}
    for argument, name in (("gpus_argument", "gpus"), ("target", "model")):
        if given.get(argument):
            typed[name] = given[argument]
    for text in given["set_keys"] or ():
        name, sign, value = text.partition("=")
        key = name.strip().replace("-", "_")
        if not sign or key in typed:
            expected, got = (f"`{key}` once", "it twice") if sign else ("KEY=VALUE", show(text))
            raise UsageError(f"expected {expected}, got {got}", key="set", hint="write --set seed=1")
        typed[key] = value.strip()
    for key, value in typed.items():
        if key in KEYS and isinstance(value, str):
            with about(key):
                typed[key] = KEYS[key].kind.read(value)
    return typed


def read_gpu_memory(text: str | None, num_gpus: int) -> list[int] | None:
    """Read the capacity of each GPU in bytes; None without `--gpu-memory`.

    Raises:
        UsageError: a size cannot be read, or there are several, but not one for each GPU.

    """
    if text is None:
        return None
    sizes = [part.strip() for part in text.split(",")]
    with about("gpu_memory"):
        found = capacities(sizes[0] if len(sizes) == 1 else sizes, num_gpus)
    return [each for each in found if each is not None]


def hint_at_size(text: str | None) -> None:
    """Print how `--gpu-memory` was read if it has no unit, or a unit of 1000: cards have GiB."""
    for part in dict.fromkeys(part.strip() for part in (text or "").split(",") if part):
        exact = exact_size(part)
        if not exact.endswith("iB"):
            read = size(parse_size(part))
            print_hint(f"--gpu-memory: `{part}` is {read}; the memory of cards is sold in GiB")
        elif exact != part:
            print_hint(f"--gpu-memory: `{part}` is read as {exact}")


def inputs_of(shapes: list[str] | None, function: str | None) -> list[str] | str | None:
    """Return the shapes of `--input` or the function of `--inputs`; None if there are neither.

    Raises:
        UsageError: for both, or a function that has not the form of one.

    """
    exclusive(input=shapes, inputs=function)
    if function and not is_target(function):
        raise UsageError(f"expected `pkg.mod:function`, got {show(function)}", key="inputs")
    return shapes or function or None


def batch_of_inputs(config: Config, shapes: list[str] | None) -> Config:
    """Take the batch size from the first shape, unless the user set it."""
    from dpdemo.models.inputspec import read_input

    written = [read_input(text) for text in shapes or ()]
    if not written or "batch_size" in config.model_fields_set or len(written[0].shape) <= config.dim:
        return config
    rows = written[0].shape[config.dim]
    if not rows:
        raise UsageError(
            f"expected a batch of 1 or more, got {(shapes or [])[0]!r}",
            key="input",
            hint=f"number {config.dim + 1} of the first shape is the batch size",
        )
    return make_config({**config.values(), "batch_size": rows})


def codes_of(text: str) -> tuple[str, ...]:
    """Read `DP2,DP305`."""
    return tuple(code.strip() for code in text.split(",") if code.strip())
