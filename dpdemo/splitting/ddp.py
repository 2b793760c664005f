"""The predicted samples of each rank of DistributedDataParallel: pure arithmetic.

DistributedSampler gives all ranks the same number of samples; with weights they differ.
"""

from collections.abc import Iterator
from dataclasses import replace

from dpdemo.arithmetic.chunk import Split
from dpdemo.arithmetic.sampler import Epoch
from dpdemo.config.fields import Config
from dpdemo.config.ranks import distribute_epoch
from dpdemo.results.batches import BatchGroup, Replica
from dpdemo.results.devices import Devices
from dpdemo.results.distribution import Distribution, Indices
from dpdemo.results.split import SplitReport
from dpdemo.results.tracing import trace_visits
from dpdemo.splitting.shapes import outside_of, predicted_devices, replicas_of


def predict_ddp(config: Config) -> SplitReport:
    """Predict the epoch of a checked DDP config.

    Raises:
        UsageError: if `gpus` is `all`.

    """
    node = _node_devices(config)
    devices = Devices(node * config.nodes)
    epoch = distribute_epoch(config, len(devices))
    groups = []
    if epoch.num_full_batches:
        groups.append(_group(config, devices, first=1, count=epoch.num_full_batches, split=epoch.full))
    if epoch.last:
        groups.append(_group(config, devices, first=epoch.num_batches, count=1, split=epoch.last))
    report = SplitReport(
        "simulate",
        config,
        devices,
        tuple(groups),
        strategy="ddp",
        wrapped=config.wrapped,
        distribution=_distribution(config, epoch, len(devices)),
    )
    if config.trace_sample is None:
        return report
    visits = epoch.visits(config.trace_sample)
    return replace(report, trace=trace_visits(report, config.trace_sample, visits))


def _node_devices(config: Config) -> Devices:
    devices = predicted_devices(config)
    return Devices.cpu(config.processes or 1) if devices.kind == "cpu" else devices


def _group(config: Config, devices: Devices, *, first: int, count: int, split: Split) -> BatchGroup:
    return BatchGroup(
        first=first,
        count=count,
        batch_size=split.batch_size,
        in_model=tuple(_ranks(config, devices, split)),
        idle=Devices(),
        outside=outside_of(config, devices, split.sizes()[0]),
    )


def _ranks(config: Config, devices: Devices, split: Split) -> Iterator[Replica]:
    per_node = len(devices) // config.nodes
    for rank in replicas_of(config, devices, split):
        node, local_rank = divmod(rank.replica, per_node)
        yield replace(rank, rank=rank.replica, node=node, local_rank=local_rank)


def _distribution(config: Config, epoch: Epoch, num_ranks: int) -> Distribution:
    return Distribution(
        nodes=config.nodes,
        batch_size=epoch.full.largest,
        global_batch_size=epoch.full.batch_size,
        drawn=epoch.drawn,
        num_repeated=epoch.num_repeated,
        num_dropped=epoch.num_dropped,
        repeated=None if config.shuffle else _indices(epoch.repeated()),
        dropped=None if config.shuffle else _indices(epoch.dropped()),
        world_size=num_ranks,
    )


def _indices(span: range) -> Indices:
    return (span,) if span else ()
