"""The JSON form of the list of visible devices, `dpdemo.devices/1`: what stands under each key."""

import json
from collections.abc import Sequence
from typing import Literal

from typing_extensions import TypedDict  # pydantic brings it, and needs it before Python 3.12

from dpdemo.balance import Imbalance, Quantity, VisibleDevice

SCHEMA: Literal["dpdemo.devices/1"] = "dpdemo.devices/1"


class DeviceJson(TypedDict):
    """A GPU as torch sees it."""

    name: str
    model: str
    memory_bytes: int
    multiprocessors: int


class ImbalanceJson(TypedDict):
    """The pair that breaks DataParallel's balance rule: `ratio` is the smaller over the larger."""

    what: Quantity
    smaller: DeviceJson
    larger: DeviceJson
    ratio: float


class DevicesJson(TypedDict):
    """The visible GPUs; `imbalance` is null where DataParallel over all of them would not warn."""

    schema: Literal["dpdemo.devices/1"]
    devices: list[DeviceJson]
    imbalance: ImbalanceJson | None


def devices_json(devices: Sequence[VisibleDevice], imbalance: Imbalance | None) -> str:
    """Write the devices and the pair that breaks the rule as JSON text."""
    found = DevicesJson(
        schema=SCHEMA,
        devices=[_device(device) for device in devices],
        imbalance=None if imbalance is None else _imbalance(imbalance),
    )
    return json.dumps(found, indent=2) + "\n"


def _device(device: VisibleDevice) -> DeviceJson:
    return DeviceJson(
        name=device.name,
        model=device.model,
        memory_bytes=device.memory_bytes,
        multiprocessors=device.multiprocessors,
    )


def _imbalance(found: Imbalance) -> ImbalanceJson:
    return ImbalanceJson(
        what=found.what, smaller=_device(found.smaller), larger=_device(found.larger), ratio=found.ratio
    )
