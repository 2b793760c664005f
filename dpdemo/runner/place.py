"""Where a run takes place: on what this machine has, or on virtual GPUs made for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from dpdemo.config import Config
from dpdemo.devices import Devices
from dpdemo.errors import UsageError
from dpdemo.runner.visible import chosen_devices

if TYPE_CHECKING:
    from dpdemo.virtual import VirtualGpus


class Opened(NamedTuple):
    """The devices of a run, and what counts their bytes where they are virtual."""

    devices: Devices
    gpus: "VirtualGpus | None"


@contextmanager
def opened_devices(config: Config, *, virtual: bool) -> Iterator[Devices]:
    """Give the devices of a run for the length of a `with` block.

    Raises:
        UsageError: if a GPU is asked for that is not there, or virtual ones cannot be made.

    """
    with opened(config, virtual=virtual) as place:
        yield place.devices


@contextmanager
def opened(config: Config, *, virtual: bool) -> Iterator[Opened]:
    """Give the devices of a run, with the ledger of virtual ones, for the length of a `with` block.

    Raises:
        UsageError: if a GPU is asked for that is not there, or virtual ones cannot be made.

    """
    if not virtual:
        yield Opened(chosen_devices(config), None)
        return
    from dpdemo.virtual import VirtualGpuError, virtual_gpus

    count = num_virtual(config)
    try:
        with virtual_gpus(count) as gpus:
            yield Opened(chosen_devices(config), gpus)
    except VirtualGpuError as error:
        raise UsageError(
            f"expected to open {count} virtual GPUs, got an error: {error} - at `virtual`"
        ) from None


def num_virtual(config: Config) -> int:
    """Count the virtual GPUs that a config needs: enough for the highest ordinal in it.

    Raises:
        UsageError: if no GPU is named, or all of an unknown number.

    """
    match config.gpus:
        case None | "all":
            got = "none" if config.gpus is None else "`all`"
            raise UsageError(
                f"expected ordinals of virtual GPUs, got {got} - at key `gpus`",
                hint="say which: --virtual --gpus 0,1,2",
            )
        case int(count):
            highest = count - 1
        case ordinals:
            highest = max(ordinals)
    return max(highest, config.output_device or 0) + 1
