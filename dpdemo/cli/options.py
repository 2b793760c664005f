"""The options that commands share, each with one name, one help text and one panel.

To add a shared option, add an alias here and a parameter of that type to the commands that take it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from dpdemo.cli import completion
from dpdemo.config.fields import INT64_MAX, KEYS
from dpdemo.config.kinds import FLAG
from dpdemo.errors import UsageError
from dpdemo.files import check_save_path, endings
from dpdemo.wording import show

MAIN = "Most used"
"""The panel of options that people type first; the others follow, each in the panel of its subject."""
GPUS, DATA, MODEL, CHECKS, OUTPUT = "GPUs", "Data", "Model", "Checks", "Output"
OfTable = Literal["json", "csv", "markdown"]
"""The formats of a report that is a table; others have `json` alone, and perhaps formats of their own."""
OfCheck = Literal["json", "github", "sarif"]
Text = str | None
Texts = list[str] | None
CONFIG_KEYS: list[str] = []
"""Config keys that are options of their own; `--set KEY=VALUE` sets any key."""


def option(words: str, panel: str, text: str, offers: Callable[..., Any] | None = None, **more: Any) -> Any:
    """Make an option; the case of its choices does not matter.

    Args:
        words: its flags, and perhaps the name of its value: `--gpus -g N`.
        panel: where its help is listed.
        text: its help.
        offers: completes its value at the Tab key.
        more: further arguments of typer.Option.

    """
    flags = [word for word in words.split() if word.startswith("-")]
    metavar = words.split()[len(flags) :]
    more = {"callback": _not_empty, "case_sensitive": False, **more}
    more["metavar"] = metavar[0] if metavar else None
    return typer.Option(*flags, rich_help_panel=panel, help=text, autocompletion=offers, **more)


def is_typed(ctx: typer.Context, name: str) -> bool:
    """Return whether a parameter was typed, and has not its default."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _not_empty(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    """Refuse an empty text, which comes from an unset variable of the shell: it is not the default."""
    is_empty = value == "" or (isinstance(value, list) and "" in value)
    if is_empty and is_typed(ctx, str(param.name)):
        hint = "is a variable of the shell empty? leave it out, or give it a value"
        raise UsageError("expected a value, got an empty one", key=str(param.name), hint=hint)
    return value


def _argument(metavar: str, text: str, offers: Callable[..., Any] | None = None) -> Any:
    """Make an argument."""
    return typer.Argument(metavar=metavar, help=text, autocompletion=offers, callback=_not_empty)


def _key(name: str, panel: str, words: str = "", offers: Callable[..., Any] | None = None) -> Any:
    """Make the option of a config key, with the key's help; the config checks its value."""
    CONFIG_KEYS.append(name)
    known, flag = KEYS[name], name.replace("_", "-")
    flags = f"--{flag}/--no-{flag}" if known.kind is FLAG else f"--{flag} {words}"
    text = known.help if known.default in {None, False} else f"{known.help} (default: {known.default})"
    return option(flags, panel, text, offers)


def _checked_size(param: typer.CallbackParam, value: int | None) -> int | None:
    if value is not None and not 1 <= value <= INT64_MAX:
        raise UsageError(
            f"expected a whole number from 1 to {INT64_MAX}, got {show(value)}", key=str(param.name)
        )
    return value


SIZE: dict[str, Any] = {"callback": _checked_size}
"""Bounds an option that is a size."""


def saved(panel: str, suffixes: Sequence[str], text: str, flag: str = "--save") -> Any:
    """Make an option that names a file to write, which is checked before anything runs."""

    def check(
        ctx: typer.Context, param: typer.CallbackParam, value: list[Path] | Path | None
    ) -> list[Path] | Path | None:
        read = [ctx.params["config"]] if ctx.params.get("config") else []
        for path in [value] if isinstance(value, Path) else value or []:
            check_save_path(path, suffixes, str(param.name), read=read)
        return value

    return option(f"{flag} FILE", panel, f"{text} {' '.join(suffixes)}", callback=check)


SAVE = "Also write the report to FILE (repeatable):"
_FORM = option("--format -f", OUTPUT, "Format of the report.")

# ---- keys of the config ----
ConfigFile = Annotated[
    Text, option("--config -c FILE", MODEL, "YAML file with any keys of the config.", is_eager=True)
]
Gpus = Annotated[Text, _key("gpus", MAIN, "-g GPUS")]
GpusArgument = Annotated[Text, _argument("GPUS", "The same as --gpus.")]
Strategy = Annotated[Literal["dp", "ddp"] | None, _key("strategy", GPUS)]
BatchSize = Annotated[int | None, _key("batch_size", MAIN, "-b SAMPLES")]
DataSize = Annotated[int | None, _key("data_size", DATA, "SAMPLES")]
DropLast = Annotated[bool | None, _key("drop_last", DATA)]
Model = Annotated[Text, _key("model", MAIN, "MODEL", completion.models)]
_SET = "Set any key of the config, such as seed=1 or dim=1 (repeatable)."
SetKeys = Annotated[Texts, option("--set KEY=VALUE", MODEL, _SET, completion.keys)]

# ---- output ----
TextForm = Annotated[Literal["text", "json"], _FORM]
PlainForm = Annotated[Literal["table", OfTable], _FORM]
SplitForm = Annotated[Literal["table", "transcript", OfTable], _FORM]
CheckForm = Annotated[Literal["text", OfCheck], _FORM]
SaveText = Annotated[list[Path] | None, saved(MAIN, endings(("json",)), SAVE)]
Save = Annotated[list[Path] | None, saved(MAIN, endings(get_args(OfTable)), SAVE)]
SaveCheck = Annotated[list[Path] | None, saved(MAIN, endings(get_args(OfCheck)), SAVE)]
Quiet = Annotated[bool, option("--quiet -q", OUTPUT, "No hints, no progress.")]
Verbose = Annotated[bool, option("--verbose -v", OUTPUT, "List every batch separately.")]

# ---- GPUs and models of several commands ----
_TARGET = """The model: model.py:Net, pkg.mod:Net, transformers:gpt2-xl, torchvision:resnet50, timm:..., or \
a built-in name."""
Target = Annotated[str, _argument("TARGET", _TARGET, completion.models)]
Count = Annotated[Text, option("--gpus -g N", MAIN, "Number of virtual GPUs. (default: 4)")]
Virtual = Annotated[bool, option("--virtual", GPUS, "Use virtual GPUs: no GPU is needed.")]
_CARD = "The card, for its memory and CUDA's own share of it: A100-80GB, T4, RTX3090."
Card = Annotated[Text, option("--gpu CARD", GPUS, _CARD, completion.cards)]
_MEMORY = "Memory of each GPU, or a list with one size for each: 24GiB,24GiB,80GiB."
GpuMemory = Annotated[Text, option("--gpu-memory SIZE", GPUS, _MEMORY)]
_LINK = "Connection of the GPUs: pcie3, pcie4, pcie5, nvlink2, nvlink3, nvlink4, nvlink-3090, no-p2p."
Link = Annotated[str, option("--link NAME", GPUS, _LINK, completion.links)]
_INPUT = """One for each argument of the model: 32x128, mask=32x128:bool, ids=32x16:int64<1000. By default \
inferred from the first layer."""
InputSpec = Annotated[Texts, option("--input [NAME=]SHAPE[:TYPE[<N]]", MAIN, _INPUT)]
_INPUTS = "Function that returns the inputs for a batch size."
InputsFrom = Annotated[Text, option("--inputs pkg.mod:function", DATA, _INPUTS)]
Rows = Annotated[int | None, option("--batch-size -b ROWS", MAIN, "Rows of the batch. (default: 32)", **SIZE)]
_LOSS = """mean, mse, cross-entropy, output.loss, or a function of the output, pkg.mod:function. (default: \
output.loss if there is one, else mean)"""
Loss = Annotated[Text, option("--loss LOSS", MODEL, _LOSS, completion.losses)]
_SELECT = "Apply only these rules: codes or their beginnings, DP2,DP305."
Select = Annotated[str, option("--select CODES", CHECKS, _SELECT, completion.rules)]
_IGNORE = "Leave out these rules: codes or their beginnings."
Ignore = Annotated[str, option("--ignore CODES", CHECKS, _IGNORE, completion.rules)]
