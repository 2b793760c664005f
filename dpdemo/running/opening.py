"""The devices of a run: this machine's, or virtual GPUs opened for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from dpdemo.config.fields import Config
from dpdemo.errors import UsageError
from dpdemo.models.failure import memory_told
from dpdemo.results.devices import Devices
from dpdemo.running.visible import chosen_devices

if TYPE_CHECKING:
    from dpdemo.virtual import VirtualGpus


DEFAULT_VIRTUAL = 2
"""The number of virtual GPUs of a run that names none."""


class Opened(NamedTuple):
    """The devices of a run, and what counts their bytes where they are virtual."""

    devices: Devices
    gpus: "VirtualGpus | None"


@contextmanager
def opened(config: Config, *, virtual: bool) -> Iterator[Opened]:
    """Open the devices of a run, with the ledger of virtual ones, for the length of a `with` block.

    Raises:
        UsageError: if a GPU does not exist, or virtual GPUs cannot be made.

    """
    if not virtual:
        with memory_told("run it here"):
            yield Opened(chosen_devices(config), None)
        return
    from dpdemo.virtual import virtual_gpus

    with memory_told("run it here"), virtual_gpus(num_virtual(config)) as gpus:
        yield Opened(chosen_devices(config), gpus)


def num_virtual(config: Config) -> int:
    """Count the virtual GPUs that a config needs: enough for the highest ordinal in it, or DEFAULT_VIRTUAL.

    Raises:
        UsageError: if it asks for all of an unknown number.

    """
    if config.gpus == "all":
        raise UsageError(
            "expected a number of virtual GPUs, got `all`", key="gpus", hint="say how many: {gpus=3}"
        )
    ordinals = range(DEFAULT_VIRTUAL) if config.ordinals is None else config.ordinals
    return max(*ordinals, config.output_device or 0) + 1
