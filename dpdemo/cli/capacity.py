"""The option `--gpu-memory`: one size for all GPUs, or one for each."""

from typing import Annotated

import typer

from dpdemo.bytesize import capacities, parse_size
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
        said, shown, advice = str(error).rpartition(repr(text))
        hint = advice.removeprefix("; ") or "units are KiB, MiB, GiB and TiB, of 1024 each"
        raise UsageError(f"{said}{shown} - at option `--gpu-memory`", hint=hint) from None
