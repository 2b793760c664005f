"""How fast each GPU at hand is, for `weights: auto`: the same part of a batch on each of them, timed."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.models.modules import Placement, build
from dpdemo.reports.devices import Devices
from dpdemo.running.epoch import make_loader

_ROUNDS = 7
_ALIKE = 0.05
"""GPUs that differ by less than this are taken as equal: a second measurement differs by as much."""


def with_measured_speeds(config: Config, devices: Devices) -> Config:
    """Measure the speeds that `weights: auto` follows, unless they are given; other configs need none."""
    if config.weights != "auto" or config.speeds is not None:
        return config
    seconds = {ordinal: _seconds(_calls(config, ordinal, len(devices))) for ordinal in set(devices.ordinals)}
    speeds = relative_speeds([seconds[ordinal] for ordinal in devices.ordinals])
    return make_config(config.model_dump(exclude_unset=True) | {"speeds": speeds})


def relative_speeds(seconds: list[float]) -> tuple[float, ...]:
    """Turn each GPU's time for equal work into its speed: 1 is the fastest, to two digits."""
    fastest = min(seconds)
    return tuple(1.0 if fastest / one > 1 - _ALIKE else max(0.01, round(fastest / one, 2)) for one in seconds)


def _calls(config: Config, ordinal: int, num_gpus: int) -> Callable[[], object]:
    """Make a function that runs forward with an equal share of a batch on one GPU, and waits for it."""
    plain = config.model_copy(update={"weights": None})
    device = torch.device("cuda", ordinal)
    wrap = Placement(lambda module: nn.DataParallel(module, [ordinal], dim=config.dim), device, device)
    built = build(plain, wrap)
    batch = next(iter(make_loader(plain)))
    rows = batch.shape[config.dim]
    share = batch.narrow(config.dim, 0, min(rows, max(2, rows // num_gpus))).to(built.input_device)

    def call() -> None:
        with torch.no_grad():
            built.model(share)
        torch.cuda.synchronize(device)

    return call


def _seconds(call: Callable[[], object]) -> float:
    """Time a call: the median of several, after one that warms up."""
    call()
    times = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
