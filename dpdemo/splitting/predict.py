"""The predicted split of an epoch: pure arithmetic, without torch, data or devices.

The cost does not depend on the number of samples: an epoch has at most two kinds of batch.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

from dpdemo.arithmetic.chunk import Split
from dpdemo.config.fields import Config
from dpdemo.config.load import Keys, expect_strategy, resolve, showing_keys
from dpdemo.config.ranks import distribute_epoch
from dpdemo.errors import UsageError
from dpdemo.results.batches import BatchGroup
from dpdemo.results.devices import Devices
from dpdemo.results.distribution import Distribution
from dpdemo.results.split import SplitReport
from dpdemo.results.splitdata import trace_batches, trace_visits
from dpdemo.splitting.shapes import outside_of, predicted_devices, replicas_of

if TYPE_CHECKING:
    from dpdemo.arithmetic.sampler import Epoch
    from dpdemo.splitting.tokens import TokenOptions


@showing_keys
def simulate(  # noqa: PLR0913 - one argument for each option of the command
    config: Config | str | os.PathLike[str] | None = None,
    *,
    lengths: Sequence[int] | str | os.PathLike[str] | None = None,
    group_by_length: bool = False,
    sort: bool = False,
    pack: int | None = None,
    pad_to: Literal["chunk", "batch"] | int | None = None,
    cost: Literal["linear", "quadratic"] = "linear",
    accumulate: int = 1,
    **overrides: Unpack[Keys],
) -> SplitReport:
    """Predict the split of every batch of the epoch.

    Args:
        config: a Config, or the path of a YAML file; the tutorial's values if left out.
        lengths: the tokens of each sample, or a file of them (see `dpdemo simulate --lengths`); the epoch is
            as long as they are unless `data_size` is set.
        group_by_length: reorder samples as transformers' LengthGroupedSampler does, from `seed`.
        sort: reorder samples by length, the longest first.
        pack: pack samples into rows of at most so many tokens.
        pad_to: pad rows to the longest of their `chunk` or `batch`, or to so many tokens.
        cost: whether a row takes time by its tokens, or by their square, as attention does.
        accumulate: batches of an optimizer step.
        overrides: config keys that win over `config`, such as `gpus=8` or `batch_size=64`.

    Returns:
        The rows of each GPU in each batch, and the shapes in and outside of the model; with `lengths` the
        tokens too.

    Raises:
        UsageError: if the config or the lengths are not valid, or `gpus` is `all` (which only a machine can
            answer).

    """
    arrangement = {"group_by_length": group_by_length, "sort": sort, "pack": pack}
    options: dict[str, Any] = {**arrangement, "pad_to": pad_to, "cost": cost, "accumulate": accumulate}
    if lengths is None:
        _expect_no_options(options)
        return predict(expect_strategy(resolve(config, overrides), ("dp", "ddp")))
    from dpdemo.splitting.lengths import get_lengths
    from dpdemo.splitting.tokens import make_options

    given = make_options(get_lengths(lengths), **options)
    checked = resolve(config, overrides, {"data_size": len(given.lengths.values)})
    return predict(expect_strategy(checked, ("dp", "ddp")), given)


def _expect_no_options(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value != {"cost": "linear", "accumulate": 1}.get(name) and value is not False:
            raise UsageError("expected `lengths` beside it, got none", key=name)


def predict(config: Config, tokens: "TokenOptions | None" = None) -> SplitReport:
    """Predict the split for a checked config, and the tokens of each device where lengths are given.

    Raises:
        UsageError: if `gpus` is `all`, or a sample of a shuffled epoch is to be traced.

    """
    if tokens is None:
        return _predict_rows(config)
    from dpdemo.splitting.tokens import arrange, count_tokens

    rows = arrange(config, tokens)
    report = _predict_rows(rows.config)
    return count_tokens(report, rows, tokens)


def _predict_rows(config: Config) -> SplitReport:
    if config.trace_sample is not None and config.shuffle:
        raise UsageError(
            f"expected an epoch in order to trace sample {config.trace_sample}, got one that is shuffled, "
            "which torch's random numbers decide",
            key="trace_sample",
            hint="`dpdemo run` shows it, or leave shuffle out",
        )
    devices = predicted_devices(config)
    epoch = distribute_epoch(config, len(devices))
    report = SplitReport(
        "simulate",
        config,
        devices,
        tuple(_group(config, devices, *batches) for batches in epoch.batches()),
        strategy=config.strategy,
        wrapped=config.wrapped,
        distribution=_distribution(config, epoch) if config.strategy == "ddp" else None,
    )
    sample = config.trace_sample
    if sample is None:
        return report
    if config.strategy == "ddp":
        return replace(report, trace=trace_visits(report, sample, epoch.visits(sample)))
    return replace(report, trace=trace_batches(report, sample, sample))


def _group(config: Config, devices: Devices, first: int, count: int, split: Split) -> BatchGroup:
    """Predict equal batches; under DDP `outside` is the view of rank 0."""
    is_ddp = config.strategy == "ddp"
    return BatchGroup(
        first=first,
        count=count,
        batch_size=split.batch_size,
        in_model=replicas_of(config, devices, split),
        idle=Devices(devices[number] for number in split.idle()),
        outside=outside_of(config, devices, split.sizes()[0] if is_ddp else split.batch_size),
    )


def _distribution(config: Config, epoch: "Epoch") -> Distribution:
    return Distribution(
        nodes=config.nodes,
        batch_size=epoch.full.largest,
        global_batch_size=epoch.full.batch_size,
        drawn=epoch.drawn,
        num_repeated=epoch.num_repeated,
        num_dropped=epoch.num_dropped,
        repeated=None if config.shuffle else tuple(filter(None, [epoch.repeated()])),
        dropped=None if config.shuffle else tuple(filter(None, [epoch.dropped()])),
        world_size=epoch.full.num_devices,
    )
