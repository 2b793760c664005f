"""Join a process that a launcher (torchrun or dpdemo) started as a rank to the other ranks."""

import itertools
import os
from datetime import timedelta
from typing import TYPE_CHECKING

from dpdemo.config.fields import Config
from dpdemo.errors import DpdemoError, RunError, UsageError
from dpdemo.results.devices import Devices
from dpdemo.results.split import SplitReport
from dpdemo.running.ddp.world import World, in_world

if TYPE_CHECKING:
    from dpdemo.running.epoch import Progress

_RUNS = itertools.count()


def join(config: Config, world: World, progress: "Progress | None", timeout: timedelta) -> SplitReport:
    """Run as one of the ranks that a launcher started."""
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    from dpdemo.running.ddp.rank import Rank, run_rank
    from dpdemo.running.devices import num_visible

    config = in_world(config, world, num_visible())
    devices = node_devices(config)
    _check_backend(devices)
    where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    try:
        store, _, _ = next(rendezvous("env://", world.rank, world.size, timeout=timeout))
    except Exception as error:
        raise _no_rendezvous(world, where, timeout, error) from error
    # a process may run several times: each run has its own names in the store of the launcher
    store = dist.PrefixStore(f"dpdemo/{next(_RUNS)}", store)  # type: ignore[attr-defined]  # as documented
    store.set_timeout(timeout)
    device = torch.device(devices[world.local_rank])
    return run_rank(config, Rank(world, device, store, timeout), progress if world.rank == 0 else None)


def node_devices(config: Config) -> Devices:
    """Choose the devices of this machine's ranks."""
    if config.gpus is None and config.processes is not None:
        return Devices.cpu(config.processes)
    from dpdemo.running.devices import chosen_devices

    return chosen_devices(config)


def _check_backend(devices: Devices) -> None:
    import torch
    import torch.distributed as dist

    backend, there = (
        ("nccl", dist.is_nccl_available) if devices.kind == "cuda" else ("gloo", dist.is_gloo_available)
    )
    if not dist.is_available() or not there():
        raise UsageError(
            f"expected a torch with {backend}, which {devices.kind} ranks talk through, "
            f"got torch {torch.__version__} without it",
            hint="install a torch from pytorch.org, or preview with `dpdemo simulate --strategy ddp`",
        )


def _no_rendezvous(world: World, where: str, timeout: timedelta, error: Exception) -> DpdemoError:
    from dpdemo.running.ddp.rank import first_sentence

    if "EADDRINUSE" in str(error):
        return RunError(
            "expected a free port, got one in use",
            place=f"{where} (MASTER_ADDR and MASTER_PORT)",
            hint="choose another: torchrun --master-port PORT, or --rdzv-endpoint HOST:PORT",
        )
    return RunError(
        f"expected {world.size} ranks to meet within {timeout.total_seconds():g} s, got rank {world.rank} "
        f"waiting: {first_sentence(error)}",
        place=where,
        hint="start every node, check that they reach that address, or wait longer with {timeout=}",
    )
