"""Predicting how an epoch is split, by arithmetic alone: no torch, no data, no devices.

The cost depends neither on the number of samples nor on the number of GPUs: an epoch has at most two kinds
of batch, and a batch at most two kinds of chunk.
"""

import os
from dataclasses import replace
from typing import Any

from dpdemo.catalogue import MODELS, ModelShapes, batched
from dpdemo.config import Config, as_arguments, load_config, make_config
from dpdemo.devices import Devices
from dpdemo.errors import UsageError
from dpdemo.report import BatchGroup, Outside, ReplicaRun, Shapes, SplitReport, one
from dpdemo.split import split_batch
from dpdemo.trace import trace_batches


def simulate(config: Config | str | os.PathLike[str] | None = None, **overrides: Any) -> SplitReport:
    """Predict the split of every batch of the epoch.

    Args:
        config: a Config, or the path of a YAML file; the tutorial's values if left out.
        overrides: config keys that win over `config`, such as `gpus=8` or `batch_size=64`.

    Raises:
        UsageError: if the config is not valid, or `gpus` is `all` (which only a machine can answer).

    """
    return predict(resolve(config, overrides))


def resolve(config: Config | str | os.PathLike[str] | None, overrides: dict[str, Any]) -> Config:
    """Make one checked Config of what the Python API was given.

    Raises:
        UsageError: if the result is not valid.

    """
    if config is None:
        return make_config(overrides, as_arguments(overrides))
    if isinstance(config, Config):
        return make_config({**config.model_dump(exclude_unset=True), **overrides}, as_arguments(overrides))
    return load_config(config, **overrides)


def predict(config: Config) -> SplitReport:
    """Predict the split for a checked config.

    Raises:
        UsageError: if `gpus` is `all`, or a sample of a shuffled epoch shall be traced.

    """
    if config.trace_sample is not None and config.shuffle:
        raise UsageError(
            f"expected an epoch in order to trace sample {config.trace_sample}, got one that is shuffled, "
            "which torch's random numbers decide - at key `trace_sample`",
            hint="`dpdemo run --trace-sample` tells, or leave shuffle out",
        )
    if config.strategy == "ddp":
        from dpdemo.prediction_ddp import predict_ddp

        return predict_ddp(config)
    devices = predicted_devices(config)
    full, rest = divmod(config.data_size, config.batch_size)
    groups = []
    if full:
        groups.append(_group(config, devices, first=1, count=full, rows=config.batch_size))
    if rest and not config.drop_last:
        groups.append(_group(config, devices, first=full + 1, count=1, rows=rest))
    wrapped = MODELS[config.model].wrapped if config.is_builtin else ""
    report = SplitReport("simulate", config, devices, tuple(groups), wrapped=wrapped)
    if config.trace_sample is None:
        return report
    return replace(report, trace=trace_batches(report, config.trace_sample, config.trace_sample))


def predicted_devices(config: Config) -> Devices:
    """Name the devices of `gpus`: the CPU when there is none.

    Raises:
        UsageError: if `gpus` is `all`, or left out although there is an `output_device`.

    """
    match config.gpus:
        case None if config.output_device is not None:
            raise UsageError(
                f"expected GPUs to gather on, got output_device {config.output_device} without `gpus` - "
                "at key `output_device`",
                hint="say how many GPUs to preview: --gpus 8",
            )
        case None:
            return Devices.cpu()
        case int(count):
            return Devices.of("cuda", range(count))
        case "all":
            raise UsageError(
                "expected a count such as 8, or ordinals such as 0,1,2, got `all`, which depends on the "
                "machine - at key `gpus`",
                hint="say how many GPUs to preview: --gpus 8",
            )
        case ordinals:
            return Devices.of("cuda", ordinals)


def _group(config: Config, devices: Devices, *, first: int, count: int, rows: int) -> BatchGroup:
    split = split_batch(rows, len(devices))
    in_model = tuple(
        ReplicaRun(start, devices[start : start + number], size, *inner_shapes(config, size))
        for start, number, size in split.runs()
    )
    return BatchGroup(
        first=first,
        count=count,
        batch_size=rows,
        in_model=in_model,
        idle=devices[split.num_chunks :],
        outside=outside_of(config, devices, rows),
    )


def inner_shapes(config: Config, rows: int) -> tuple[Shapes, Shapes]:
    """Give the shapes that go into the wrapped module and come out of it, for a chunk of so many rows."""
    if not config.is_builtin:
        return one(batched((config.input_size,), rows, config.dim)), ()
    model = MODELS[config.model]
    sample = model.inner_input or model.input
    result = model.inner_output or model.output
    return _shapes(config, sample, rows), _shapes(config, result, rows)


def outside_of(config: Config, devices: Devices, rows: int) -> Outside:
    """Give what the training loop sees of a batch of so many rows."""
    first = devices.name(0)
    gathered = first
    if devices.kind == "cuda" and config.output_device is not None:
        gathered = f"cuda:{config.output_device}"
    if not config.is_builtin:
        return Outside(first, gathered, one(batched((config.input_size,), rows, config.dim)), ())
    model: ModelShapes = MODELS[config.model]
    return Outside(
        input_device="cpu" if model.reads_cpu_input else first,
        device=gathered,
        input=_shapes(config, model.input, rows),
        output=_shapes(config, model.output, rows),
    )


def _shapes(config: Config, sample: Any, rows: int) -> Shapes:
    return one(batched(sample(config.input_size, config.output_size), rows, config.dim))
