"""What `--help` shows: the options in panels, what is taken where one is left out, and three examples.

The options themselves stand in the commands' files and in the config's fields; here is only how they are set
out. In a pipe the help is plain text, and costs no Rich.
"""

import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from typer.core import TyperCommand

from dpdemo.cli.startup import no_collections

PANELS = {
    "GPUs": """gpus gpus_argument virtual weights chunks gpu card gpu_memory reserve link
        bandwidth fit random""",
    "Data": """batch_size data_size drop_last input inputs         seq_len image_size near""",
    "Model": """target model amp autocast optimizer loss zero_grad inference numbers
        parameters outputs one_gpu_step program module config set_keys""",
    "Checks": "check select ignore fail_on baseline explain list_rules traceback_of",
    "Tokens": "lengths seed group_by_length sort pack pad_to cost accumulate",
    "DDP": "strategy ranks timeout",
    "Output": "of folder form format save report quiet verbose",
}
"""Which option stands in which panel, by the names of the commands' parameters."""
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names.split()}

METAVARS = {
    "batch_size": "SAMPLES",
    "data_size": "SAMPLES",
    "gpus": "GPUS",
    "model": "MODEL",
    "weights": "WEIGHTS",
    "chunks": "ROWS,ROWS,...",
    "seq_len": "TOKENS",
    "image_size": "PIXELS",
}
"""What stands for an option's value, where the option itself names nothing that says more than N."""
_NOTHING_SAID = {None, "N", "N,N,..."}

EXAMPLES = {
    "doctor": (
        "doctor model.py:Net --gpus 4",
        "doctor --gpus 4 --input 32x8 --gpu-memory 24GiB model.py:Net",
        "train.py --epochs 1",
    ),
    "simulate": (
        "simulate 8 --batch-size 65 --fail-on idle,lone-sample",
        "simulate 8 --batch-size 64 --lengths lengths.txt --group-by-length",
        "simulate --strategy ddp --gpus 4 --save split.svg",
    ),
    "sweep": (
        "sweep",
        "sweep --gpus 2-8 --batch-size 16-512:x2",
        "sweep --of weight --near 64",
    ),
    "run": (
        "run --virtual --gpus 3",
        "run --virtual --gpus 4 --model model.py:Net --batch-size 64",
        "run --strategy ddp --set processes=3",
    ),
    "check": (
        "check model.py:Net --gpus 4",
        "check model.py:Net --input 32x128 --input mask=32x128:bool",
        "check --explain DP301",
    ),
    "memory": (
        "memory model.py:Net --gpus 4 --input 64x512",
        "memory transformers:gpt2-xl --gpus 4 --gpu A100-80GB",
        "memory model.py:Net --gpus 4 --gpu-memory 24GiB --fit",
    ),
    "speedup": (
        "speedup model.py:Net --link pcie4",
        "speedup model.py:Net --link nvlink3 --one-gpu-step 49ms",
        "speedup --parameters 124M --outputs 98MB --link nvlink3",
    ),
    "exec": (
        "exec --gpus 4 train.py --epochs 1",
        "exec --gpus 4 --check train.py",
        "exec --gpus 2 --gpu-memory 24GiB -m pkg.train",
    ),
    "explain": (
        "explain --virtual --gpus 3",
        "explain --virtual --gpus 4 --model model.py:Net",
        "explain --virtual --gpus 3 --save steps.svg",
    ),
    "init": ("init", "init experiments", "init -q"),
    "page": (
        "page --save page.html",
        "page --gpus 8 --batch-size 65 --save page.html",
        "page -c dpdemo.yaml --save page.html",
    ),
}
"""What to type for each command."""

_NARROWEST = 30
"""Columns that the help keeps to even on a narrower terminal; Click's own formatter stops at 50."""
Lines = list[tuple[str, str]]


class Command(TyperCommand):
    """A command whose help has panels and examples, and which is read quickly."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options; what checks them is imported now."""
        with no_collections():
            return super().make_context(*args, **kwargs)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """List the options and arguments, these as their metavars are written."""
        words = super().collect_usage_pieces(ctx)
        return [word.removeprefix("{").removesuffix("...").removesuffix("}") for word in words]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, on a terminal with frames and colours."""
        self.rich_markup_mode = None
        help_page(self, ctx, formatter, list(self.sections(ctx)), EXAMPLES.get(ctx.info_name, ()))

    def sections(self, ctx: Any) -> Iterator[tuple[str, Lines]]:
        """Yield the title of each panel and its options, arguments first."""
        found: dict[str, Lines] = {"Arguments": [], **{panel: [] for panel in PANELS}}
        for param in self.get_params(ctx):
            line = param.get_help_record(ctx)
            if line is None:
                continue
            if param.param_type_name == "argument":
                found["Arguments"].append(((param.metavar or param.name.upper()).strip("[]"), line[1]))
            else:
                found[_PANEL_OF.get(param.name, "Output")].append(line)
        yield from ((panel, lines) for panel, lines in found.items() if lines)


def help_page(
    command: Any, ctx: Any, formatter: Any, sections: list[tuple[str, Lines]], examples: Iterable[str]
) -> None:
    """Write the usage, what a command does, its sections and examples."""
    formatter.width = min(formatter.width, max(_NARROWEST, shutil.get_terminal_size().columns))
    command.format_usage(ctx, formatter)
    command.format_help_text(ctx, formatter)
    if sys.stdout.isatty():
        from dpdemo.cli.helpscreen import drawn

        formatter.write(drawn(sections, examples))
        return
    for title, lines in sections:
        with formatter.section(title):
            formatter.write_dl(lines, col_max=min(30, formatter.width // 2))
    if examples:
        with formatter.section("Examples"):
            formatter.write("".join(f"  dpdemo {example}\n" for example in examples))


def set_out(command: Any) -> None:
    """Say of each option of a command what it takes, and let the case of a choice not matter: DDP is ddp."""
    for param in command.params:
        param.type_descriptor.parameter_info.case_sensitive = False
        is_open = not (param.is_flag if param.param_type_name == "option" else True)
        if is_open and param.metavar in _NOTHING_SAID and not param.type_descriptor.is_choice:
            param.metavar = METAVARS.get(param.name, param.metavar)
