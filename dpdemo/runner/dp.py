"""The strategy of torch.nn.DataParallel: one process, one replica a GPU."""

from dataclasses import replace

import torch
from torch import nn

from dpdemo.catalogue import MODELS
from dpdemo.config import Config
from dpdemo.devices import Devices
from dpdemo.errors import RunInterrupted
from dpdemo.models import Placement, build
from dpdemo.report import SplitReport
from dpdemo.runner.epoch import EpochInterrupted, Progress, Watch, make_loader, run_epoch
from dpdemo.runner.place import opened_devices
from dpdemo.trace import trace_batches


def run_dp(config: Config, progress: Progress | None = None, *, virtual: bool = False) -> SplitReport:
    """Run the epoch of a checked config under DataParallel, on real devices or on virtual GPUs.

    Raises:
        UsageError: if a GPU is named that is not there, or the user's model cannot be made.
        RunError: if the model fails.
        RunInterrupted: on Ctrl-C, with the report of the batches done so far.

    """
    with opened_devices(config, virtual=virtual) as devices:
        report = SplitReport("run", config, devices, (), wrapped=_wrapped(config), virtual=virtual)
        built = build(config, place(config, devices))
        loader = make_loader(config)
        try:
            batches = run_epoch(built, config, devices, loader, Watch(progress))
        except EpochInterrupted as interrupt:
            partial = replace(report, batches=interrupt.batches, partial=True)
            raise RunInterrupted(_traced(partial, loader.order)) from None
        return _traced(replace(report, batches=batches), loader.order)


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


def _traced(report: SplitReport, order: torch.Tensor | None) -> SplitReport:
    """Add the way of the sample that the config names, from what was seen."""
    sample = report.config.trace_sample
    if sample is None:
        return report
    position = sample if order is None else int((order == sample).nonzero())
    return replace(report, trace=trace_batches(report, sample, position))


def _wrapped(config: Config) -> str:
    return MODELS[config.model].wrapped if config.is_builtin else ""
