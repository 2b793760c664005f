"""The strategy of torch.nn.DataParallel: one process, one replica per GPU."""

from dataclasses import replace

import torch
from torch import nn

from dpdemo.config.fields import Config
from dpdemo.epochs.devices import opened
from dpdemo.epochs.epoch import Callbacks, Progress, make_loader, run_epoch, with_own_size
from dpdemo.epochs.interrupts import EpochInterrupted, RunInterrupted
from dpdemo.models.modules import Placement, build
from dpdemo.results.devices import Devices
from dpdemo.results.split import SplitReport
from dpdemo.results.splitdata import trace_batches


def run_dp(config: Config, progress: Progress | None = None, *, virtual: bool = False) -> SplitReport:
    """Run the epoch of a checked config under DataParallel, on real devices or on virtual GPUs.

    Raises:
        UsageError: if a GPU does not exist, or the user's model cannot be built.
        RunError: if the model fails.
        RunInterrupted: on Ctrl-C, with the report of the batches done so far.

    """
    with opened(config, virtual=virtual) as devices:
        built = build(config, place(config, devices))
        config = with_own_size(config, built)
        report = SplitReport("run", config, devices, (), wrapped=config.wrapped, virtual=virtual)
        loader = make_loader(config, built)
        try:
            batches = run_epoch(built, config, devices, loader, Callbacks(progress))
        except EpochInterrupted as interrupt:
            partial = replace(report, batches=interrupt.batches, partial=True)
            raise RunInterrupted(_traced(partial, loader.order)) from None
        return _traced(replace(report, batches=batches), loader.order)


def place(config: Config, devices: Devices) -> Placement:
    """Describe how DataParallel splits a module over the devices, and where its neighbours go."""
    if devices.kind == "cpu":
        cpu = torch.device("cpu")
        return Placement(lambda module: nn.DataParallel(module, dim=config.dim), cpu, cpu)
    device_ids = devices.ordinals
    first = device_ids[0]
    # With one device DataParallel gathers nothing: the output stays where it was computed
    last = first if config.output_device is None or len(device_ids) == 1 else config.output_device

    def wrap(module: nn.Module) -> nn.Module:
        return wrap_in_data_parallel(module, config, device_ids)

    return Placement(wrap, torch.device("cuda", first), torch.device("cuda", last))


def wrap_in_data_parallel(module: nn.Module, config: Config, device_ids: list[int]) -> nn.Module:
    """Wrap a module in torch's DataParallel."""
    return nn.DataParallel(module, device_ids, output_device=config.output_device, dim=config.dim)


def _traced(report: SplitReport, order: torch.Tensor | None) -> SplitReport:
    """Trace the config's sample through the observed batches."""
    sample = report.config.trace_sample
    if sample is None:
        return report
    position = sample if order is None else int((order == sample).nonzero())
    return replace(report, trace=trace_batches(report, sample, position))
