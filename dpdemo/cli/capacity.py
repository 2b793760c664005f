"""The option `--gpu-memory`: one size for all GPUs, or one for each."""

from typing import Annotated

import typer

from dpdemo.bytesize import capacities, exact_size, parse_size, size
from dpdemo.cli.streams import print_hint
from dpdemo.errors import about

_HELP = "What each GPU can hold, or a list with one size for each: 24GiB,24GiB,80GiB."
GpuMemory = Annotated[str | None, typer.Option("--gpu-memory", metavar="SIZE", help=_HELP)]


def read_gpu_memory(text: str | None, num_gpus: int) -> list[int] | None:
    """Read the capacity of each GPU in bytes; None where the option is not given.

    Raises:
        UsageError: a size cannot be read, or there are several, but not one for each GPU.

    """
    if text is None:
        return None
    sizes = [part.strip() for part in text.split(",")]
    with about("gpu_memory"):
        found = capacities(sizes[0] if len(sizes) == 1 else sizes, num_gpus)
    return [each for each in found if each is not None]


def say_how_read(text: str | None) -> None:
    """Print to stderr how a size was read if it has no unit, or a unit of 1000: cards have GiB."""
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    for part in dict.fromkeys(parts):
        exact = exact_size(part)
        if not exact.endswith("iB"):
            print_hint(
                f"--gpu-memory: `{part}` is {size(parse_size(part))}; the memory of cards is sold in GiB"
            )
        elif exact != part:
            print_hint(f"--gpu-memory: `{part}` is read as {exact}")
