"""The JSON form of an `ExecReport`, `dpdemo.exec/1`: what stands under each key, in exact numbers."""

import json
from typing import Literal

from typing_extensions import TypedDict  # pydantic brings it, and needs it before Python 3.12

from dpdemo.execreport import ExecReport, Use
from dpdemo.render.jsonform import outside_json, replicas_json, rounded
from dpdemo.render.wire import BatchJson
from dpdemo.report import BatchGroup

SCHEMA: Literal["dpdemo.exec/1"] = "dpdemo.exec/1"


class UseJson(TypedDict):
    """One DataParallel object, or all calls alike of a function that does the same (`is_function`).

    Each of `splits` stands for `count` calls that were split alike, number `first` (1-based) the first of
    them; an empty `in_model` is a split that was not seen. `num_unlisted` calls were split in yet other ways.
    """

    number: int
    wrapper: str
    module: str
    devices: list[str]
    is_function: bool
    in_replica: bool
    num_calls: int
    num_failed: int
    num_unlisted: int
    splits: list[BatchJson]


class MovedJson(TypedDict):
    """Bytes copied, and the number of copies."""

    host_to_device_bytes: int
    device_to_device_bytes: int
    device_to_host_bytes: int
    num_host_to_device: int
    num_device_to_device: int
    num_device_to_host: int


class MemoryJson(TypedDict):
    """What a GPU held at most, since the start or the program's last reset of the peaks; null is no limit."""

    device: str
    peak_bytes: int
    capacity_bytes: int | None


class ExecJson(TypedDict):
    """What a program did on virtual GPUs; `cuda_visible_devices` is what it set that to, if it did."""

    schema: Literal["dpdemo.exec/1"]
    program: str
    arguments: list[str]
    virtual: Literal[True]
    devices: list[str]
    data_parallel: list[UseJson]
    moved: MovedJson
    memory: list[MemoryJson]
    cuda_visible_devices: str | None


def execution_json(report: ExecReport) -> str:
    """Write the report as JSON."""
    moved = report.traffic
    found = ExecJson(
        schema=SCHEMA,
        program=report.program,
        arguments=list(report.arguments),
        virtual=True,
        devices=list(report.devices),
        data_parallel=[_use(use) for use in report.uses],
        moved=MovedJson(
            host_to_device_bytes=moved.host_to_device_bytes,
            device_to_device_bytes=moved.device_to_device_bytes,
            device_to_host_bytes=moved.device_to_host_bytes,
            num_host_to_device=moved.num_host_to_device,
            num_device_to_device=moved.num_device_to_device,
            num_device_to_host=moved.num_device_to_host,
        ),
        memory=[
            MemoryJson(device=device, peak_bytes=peak, capacity_bytes=capacity)
            for device, (peak, capacity) in zip(report.devices, report.peaks, strict=True)
        ],
        cuda_visible_devices=report.set_visible,
    )
    return json.dumps(found, indent=1) + "\n"


def _use(use: Use) -> UseJson:
    return UseJson(
        number=use.number,
        wrapper=use.wrapper,
        module=use.module,
        devices=list(use.devices),
        is_function=use.is_function,
        in_replica=use.in_replica,
        num_calls=use.num_calls,
        num_failed=use.num_failed,
        num_unlisted=use.num_unlisted,
        splits=[_split(group) for group in use.splits],
    )


def _split(group: BatchGroup) -> BatchJson:
    return BatchJson(
        first=group.first,
        count=group.count,
        batch_size=group.batch_size,
        in_model=list(replicas_json(group)),
        idle=list(group.idle),
        outside=outside_json(group.outside),
        utilization=rounded(group.utilization),
        sample_weight=rounded(group.sample_weight),
    )
