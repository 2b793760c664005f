"""The strategy of torch.nn.DataParallel: one process, one replica a GPU."""

import torch
from torch import nn

from dpdemo.catalogue import MODELS
from dpdemo.config import Config
from dpdemo.devices import Devices
from dpdemo.errors import RunInterrupted
from dpdemo.models import Placement, build
from dpdemo.report import BatchGroup, SplitReport
from dpdemo.runner.epoch import EpochInterrupted, Progress, run_epoch
from dpdemo.runner.visible import chosen_devices


def run_dp(config: Config, progress: Progress | None = None) -> SplitReport:
    """Run the epoch of a checked config under DataParallel.

    Raises:
        UsageError: if a GPU is named that is not visible, or the user's model cannot be made.
        RunError: if the model fails.
        RunInterrupted: on Ctrl-C, with the report of the batches done so far.

    """
    devices = chosen_devices(config)
    built = build(config, place(config, devices))
    try:
        batches = run_epoch(built, config, devices, progress)
    except EpochInterrupted as interrupt:
        raise RunInterrupted(_report(config, devices, interrupt.batches, partial=True)) from None
    return _report(config, devices, batches)


def place(config: Config, devices: Devices) -> Placement:
    """Say how DataParallel splits a module over the devices, and where its neighbours go."""
    if devices.kind == "cpu":
        cpu = torch.device("cpu")
        return Placement(lambda module: nn.DataParallel(module, dim=config.dim), cpu, cpu)
    device_ids = list(devices.ordinals)
    first = device_ids[0]
    last = first if config.output_device is None else config.output_device

    def wrap(module: nn.Module) -> nn.Module:
        return nn.DataParallel(module, device_ids, output_device=config.output_device, dim=config.dim)

    return Placement(wrap, torch.device("cuda", first), torch.device("cuda", last))


def _report(
    config: Config, devices: Devices, batches: tuple[BatchGroup, ...], *, partial: bool = False
) -> SplitReport:
    wrapped = MODELS[config.model].wrapped if config.is_builtin else ""
    return SplitReport("run", config, devices, batches, wrapped=wrapped, partial=partial)
