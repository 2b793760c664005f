"""The options that commands share, each with one name, one help text and one panel.

To add a shared option, add an alias here and a parameter of that type to the commands that take it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from dpdemo.cli import completion
from dpdemo.config.fields import INT64_MAX, KEYS
from dpdemo.config.kinds import FLAG
from dpdemo.errors import UsageError
from dpdemo.files import check_save_path, endings
from dpdemo.wording import show

GPUS, DATA, MODEL, CHECKS, OUTPUT = "GPUs", "Data", "Model", "Checks", "Output"
Every = Literal["json", "csv", "markdown"]
"""The formats of every report; a report may have more."""
OfCheck = Literal["github", "sarif"]
CONFIG_KEYS: list[str] = []
"""Config keys that are options of their own; `--set KEY=VALUE` sets any key."""


def option(flags: str, panel: str, text: str, metavar: str | None = None, **more: Any) -> Any:
    """Make an option, such as `--gpus -g`; the case of its choices does not matter."""
    more = {"rich_help_panel": panel, "help": text, "metavar": metavar, "case_sensitive": False, **more}
    return typer.Option(*flags.split(), **more)


def _key(name: str, panel: str, metavar: str | None = None, short: str = "", **more: Any) -> Any:
    """Make the option of a config key, with the key's help; the config checks its value."""
    CONFIG_KEYS.append(name)
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


def saved(panel: str, suffixes: Sequence[str], text: str, flag: str = "--save") -> Any:
    """Make an option that names a file to write, which is checked before anything runs."""

    def check(
        ctx: typer.Context, param: typer.CallbackParam, value: list[Path] | Path | None
    ) -> list[Path] | Path | None:
        read = [ctx.params["config"]] if ctx.params.get("config") else []
        for path in [value] if isinstance(value, Path) else value or []:
            check_save_path(path, suffixes, str(param.name), read=read)
        return value

    return option(flag, panel, f"{text} {' '.join(suffixes)}", "FILE", callback=check)


_SAVE = "Also write the report to FILE (repeatable):"
_FORM = option("--format -f", OUTPUT, "Format of the report.")

# ---- keys of the config ----
ConfigFile = Annotated[
    str | None, option("--config -c", MODEL, "YAML file with any keys of the config.", "FILE", is_eager=True)
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
PlainForm = Annotated[Literal["table", Every], _FORM]
SplitForm = Annotated[Literal["table", "transcript", Every], _FORM]
CheckForm = Annotated[Literal["text", Every, OfCheck], _FORM]
Save = Annotated[list[Path] | None, saved(OUTPUT, endings(get_args(Every)), _SAVE)]
SaveCheck = Annotated[list[Path] | None, saved(OUTPUT, endings(get_args(Literal[Every, OfCheck])), _SAVE)]
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
