"""The option `--gpu-memory`: one size for all GPUs, or one for each."""

from typing import Annotated

import typer

from dpdemo.bytesize import capacities, exact_size, parse_size
from dpdemo.cli.streams import print_hint
from dpdemo.errors import UsageError

_HELP = "What each GPU can hold, or a list with one size for each: 24GiB,24GiB,80GiB."
GpuMemory = Annotated[str | None, typer.Option("--gpu-memory", metavar="SIZE", help=_HELP)]


def read_gpu_memory(text: str | None, num_gpus: int) -> list[int] | None:
    """Read the capacity of each GPU in bytes; None where the option is not given.

    Raises:
        UsageError: a size cannot be read, or there are several, but not one for each GPU.

    """
    if text is None:
        return None
    sizes = [_read_size(part.strip()) for part in text.split(",")]
    try:
        found = capacities(sizes[0] if len(sizes) == 1 else sizes, num_gpus)
    except ValueError as error:
        raise UsageError(f"{error} - at option `--gpu-memory`", hint="or ask for as many GPUs") from None
    return [size for size in found if size is not None]


def _read_size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        hint = "units are KiB, MiB, GiB and TiB, of 1024 each"
        raise UsageError(f"{error} - at option `--gpu-memory`", hint=hint) from None


def say_how_read(text: str | None) -> None:
    """Say on stderr how a size was read that could be taken for another."""
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    doubtful = [part for part in dict.fromkeys(parts) if exact_size(part) != part]
    if doubtful:
        read = ", ".join(f"`{part}` as {exact_size(part)}" for part in doubtful)
        print_hint(f"--gpu-memory: {read}, of 1024 as cards are sold")
