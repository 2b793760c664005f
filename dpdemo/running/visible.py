"""The GPUs that torch sees, and the choice among them."""

import torch

from dpdemo.config.fields import Config
from dpdemo.errors import UsageError
from dpdemo.results.devices import Devices


def num_visible() -> int:
    """Count the GPUs that torch sees and can use."""
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
