"""The devices of a run: those of this machine that torch sees, or virtual GPUs opened for it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from dpdemo.config.fields import Config
from dpdemo.errors import UsageError
from dpdemo.models.failure import memory_told
from dpdemo.results.devices import Devices

DEFAULT_VIRTUAL = 2
"""The number of virtual GPUs of a run that names none."""


@contextmanager
def opened(config: Config, *, virtual: bool) -> Iterator[Devices]:
    """Open the devices of a run, for the length of a `with` block.

    Raises:
        UsageError: if a GPU does not exist, or virtual GPUs cannot be made.

    """
    with memory_told("run it here"), ExitStack() as opening:
        if virtual:
            from dpdemo.virtual import virtual_gpus

            opening.enter_context(virtual_gpus(num_virtual(config)))
        yield chosen_devices(config)


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


def num_visible() -> int:
    """Count the GPUs that torch sees and can use."""
    import torch  # a launcher of virtual ranks needs none

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def chosen_devices(config: Config) -> Devices:
    """Choose the devices of a run: those asked for, else all visible GPUs, else the CPU.

    Raises:
        UsageError: if a GPU is asked for that is not visible; fewer devices than asked are never used.

    """
    visible = num_visible()
    ordinals = range(visible) if config.ordinals is None else config.ordinals
    if config.gpus == "all" and not visible:
        raise _not_visible("all GPUs", visible)
    wanted = [*ordinals, *([] if config.output_device is None else [config.output_device])]
    missing = sorted({ordinal for ordinal in wanted if ordinal >= visible})
    if missing:
        raise _not_visible(", ".join(f"cuda:{ordinal}" for ordinal in missing[:8]), visible)
    return Devices.of("cuda", ordinals) if len(ordinals) else Devices.cpu()


def _not_visible(wanted: str, visible: int) -> UsageError:
    there = (
        f"the visible ones: {', '.join(f'cuda:{i}' for i in range(visible))}"
        if visible
        else "none visible here"
    )
    return UsageError(
        f"expected visible GPUs, got {wanted}, with {there}",
        key="gpus",
        hint="`dpdemo simulate --gpus 8` previews up to 128 GPUs, "
        "and `dpdemo run --virtual` runs DataParallel on virtual ones",
    )
