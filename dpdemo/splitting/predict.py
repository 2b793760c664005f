"""The predicted split of an epoch: pure arithmetic, without torch, data or devices.

The cost depends neither on the number of samples nor on the number of GPUs: an epoch has at most two kinds
of batch, and a batch at most two kinds of chunk; or, with weights, a run or two for each run of equal ones.
"""

import os
from dataclasses import replace
from typing import Unpack

from dpdemo.config.fields import Config
from dpdemo.config.keys import Keys, showing_keys
from dpdemo.config.load import resolve
from dpdemo.config.weights import split_of
from dpdemo.errors import UsageError
from dpdemo.reports.devices import Devices
from dpdemo.reports.split import BatchGroup, SplitReport
from dpdemo.reports.tracing import trace_batches
from dpdemo.splitting.shapes import outside_of, predicted_devices, replica_runs


@showing_keys
def simulate(config: Config | str | os.PathLike[str] | None = None, **overrides: Unpack[Keys]) -> SplitReport:
    """Predict the split of every batch of the epoch.

    Args:
        config: a Config, or the path of a YAML file; the tutorial's values if left out.
        overrides: config keys that win over `config`, such as `gpus=8` or `batch_size=64`.

    Returns:
        The rows of each GPU in each batch, and the shapes in and outside of the model.

    Raises:
        UsageError: if the config is not valid, or `gpus` is `all` (which only a machine can answer).

    """
    return predict(resolve(config, overrides))


def predict(config: Config) -> SplitReport:
    """Predict the split for a checked config.

    Raises:
        UsageError: if `gpus` is `all`, or a sample of a shuffled epoch is to be traced.

    """
    if config.trace_sample is not None and config.shuffle:
        raise UsageError(
            f"expected an epoch in order to trace sample {config.trace_sample}, got one that is shuffled, "
            "which torch's random numbers decide - at key `trace_sample`",
            hint="`dpdemo run` shows it, or leave shuffle out",
        )
    if config.strategy == "ddp":
        from dpdemo.splitting.ddp import predict_ddp

        return predict_ddp(config)
    devices = predicted_devices(config)
    full, rest = divmod(config.data_size, config.batch_size)
    groups = []
    if full:
        groups.append(_group(config, devices, first=1, count=full, rows=config.batch_size))
    if rest and not config.drop_last:
        groups.append(_group(config, devices, first=full + 1, count=1, rows=rest))
    report = SplitReport("simulate", config, devices, tuple(groups), wrapped=config.wrapped)
    if config.trace_sample is None:
        return report
    return replace(report, trace=trace_batches(report, config.trace_sample, config.trace_sample))


def _group(config: Config, devices: Devices, *, first: int, count: int, rows: int) -> BatchGroup:
    split = split_of(config, rows, len(devices))
    in_model = replica_runs(config, devices, split)
    return BatchGroup(
        first=first,
        count=count,
        batch_size=rows,
        in_model=in_model,
        idle=devices.without(run.devices for run in in_model),
        outside=outside_of(config, devices, rows),
    )
