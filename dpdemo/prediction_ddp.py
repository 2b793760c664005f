"""Predicting what each rank of DistributedDataParallel draws and computes, by arithmetic alone.

DistributedSampler gives all ranks the same number of samples, so every batch is one run of equal ranks.
"""

from dataclasses import replace

from dpdemo.catalogue import MODELS
from dpdemo.config import Config
from dpdemo.devices import Devices
from dpdemo.distribution import Distribution, Indices, NodeRun
from dpdemo.prediction import inner_shapes, outside_of, predicted_devices
from dpdemo.report import BatchGroup, ReplicaRun, SplitReport
from dpdemo.sampler import DistributedEpoch
from dpdemo.strategy import distribute_epoch
from dpdemo.trace import trace_visits


def predict_ddp(config: Config) -> SplitReport:
    """Predict the epoch of a checked DDP config.

    Raises:
        UsageError: if `gpus` is `all`.

    """
    node = _node_devices(config)
    devices = node.tiled(config.nodes)
    epoch = distribute_epoch(config, len(devices))
    groups = []
    if epoch.num_full_batches:
        groups.append(_group(config, devices, first=1, count=epoch.num_full_batches, rows=epoch.batch_size))
    if epoch.rest:
        groups.append(_group(config, devices, first=epoch.num_full_batches + 1, count=1, rows=epoch.rest))
    report = SplitReport(
        "simulate",
        config,
        devices,
        tuple(groups),
        strategy="ddp",
        wrapped=MODELS[config.model].wrapped if config.is_builtin else "",
        distribution=_distribution(config, epoch, NodeRun(0, config.nodes, 0, node)),
    )
    if config.trace_sample is None:
        return report
    visits = epoch.visits(config.trace_sample)
    return replace(report, trace=trace_visits(report, config.trace_sample, visits))


def _node_devices(config: Config) -> Devices:
    devices = predicted_devices(config)
    return devices.tiled(config.processes or 1) if devices.kind == "cpu" else devices


def _group(config: Config, devices: Devices, *, first: int, count: int, rows: int) -> BatchGroup:
    return BatchGroup(
        first=first,
        count=count,
        batch_size=rows * len(devices),
        in_model=(ReplicaRun(0, devices, rows, *inner_shapes(config, rows)),),
        idle=devices[len(devices) :],
        outside=outside_of(config, devices, rows),
    )


def _distribution(config: Config, epoch: DistributedEpoch, nodes: NodeRun) -> Distribution:
    return Distribution(
        nodes=(nodes,),
        batch_size=epoch.batch_size,
        drawn=epoch.drawn,
        num_repeated=epoch.num_repeated,
        num_dropped=epoch.num_dropped,
        repeated=None if config.shuffle else _indices(epoch.repeated()),
        dropped=None if config.shuffle else _indices(epoch.dropped()),
    )


def _indices(span: range) -> Indices:
    return (span,) if span else ()
