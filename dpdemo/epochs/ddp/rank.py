"""One rank of DistributedDataParallel: genuine sampler and wrapper, forward, backward, and what it saw.

It is the same in a process of ours and in one of torchrun's. A launcher of ours reads the events of its
ranks; those of torchrun send them to each other, and the first that fails says so in the store of all.
"""

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.config.ranks import distribute_epoch
from dpdemo.epochs.ddp.records import EpochProgress, Job, PeerLostError, RankRecord, merge
from dpdemo.epochs.ddp.world import World, in_world, ranks_of
from dpdemo.epochs.devices import num_visible, opened
from dpdemo.epochs.epoch import Callbacks, Progress, load, run_epoch, with_own_size
from dpdemo.epochs.interrupts import EpochInterrupted
from dpdemo.errors import DpdemoError, PeerFailedError, RunError, UsageError
from dpdemo.models.failure import take_apart, users_code
from dpdemo.models.losses import make_loss
from dpdemo.models.modules import BuiltModel, Placement, build
from dpdemo.ranks.events import Event
from dpdemo.ranks.observe.errors import is_lost
from dpdemo.results.batches import BatchGroup
from dpdemo.results.devices import Devices
from dpdemo.results.distribution import RankPlace
from dpdemo.results.split import SplitReport

_CTRL_C_SECONDS = 1.0
_LAST_WORDS_SECONDS = 10.0
_runs = itertools.count()


@dataclass(frozen=True)
class Rank:
    """A rank on its device, with the store that it shares with the others."""

    job: Job
    world: World
    device: torch.device
    store: Any  # a torch.distributed.Store, which torch exports at run time only
    is_ours: bool = False  # whether dpdemo launched it, and so names the rank that fails first

    @property
    def place(self) -> RankPlace:
        """The device of this rank."""
        return RankPlace(self.world.rank, self.world.node, self.world.local_rank, str(self.device))


def run_rank(job: Job, world: World, write: Callable[[Event], object]) -> None:
    """Run as one of the ranks that dpdemo started: write what it saw, also until Ctrl-C."""

    def progress(done: int, total: int) -> None:
        write(EpochProgress(done, total))

    with _connected(job, world, is_ours=True) as rank:
        write(_run_epoch(rank, None if world.rank else progress, write))


def join(job: Job, world: World, progress: Progress | None) -> SplitReport:
    """Run as one of the ranks that torchrun started; each returns the report of all.

    Raises:
        UsageError: if ranks cannot run here as asked.
        RunError: if this rank fails, with its place and the user's own frames.
        PeerFailedError: if another rank failed first.

    """
    with _connected(job, world) as rank:
        records = _exchanged(_run_epoch(rank, None if world.rank else progress), rank.device)
    return merge(records, virtual=job.virtual)


@contextlib.contextmanager
def _connected(job: Job, world: World, *, is_ours: bool = False) -> Iterator[Rank]:
    """Meet the other ranks, for the length of a `with` block that runs the user's code."""
    config = in_world(job.config, world, world.ranks_per_node if job.virtual else num_visible())
    devices = ranks_of(config, virtual=job.virtual)
    if devices.kind == "cuda" and config.gpus is None:
        config = make_config(config.values() | {"gpus": len(devices)})
    job = replace(job, config=config)
    with opened(config, virtual=job.virtual):
        rank = Rank(job, world, torch.device(devices[world.local_rank]), _store(job, world), is_ours)
        with one_failure(rank):
            if devices.kind == "cuda":
                torch.cuda.set_device(rank.device)
            dist.init_process_group(
                "nccl" if devices.kind == "cuda" else "gloo",
                store=dist.PrefixStore("dpdemo/group", rank.store),  # type: ignore[attr-defined]  # as documented
                rank=world.rank,
                world_size=world.size,
                timeout=job.timeout,
            )
            yield rank
            dist.destroy_process_group()


def _store(job: Job, world: World) -> Any:
    """Return the store that all ranks share; a process may run several times, each under another prefix."""
    where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    seconds = job.timeout.total_seconds()
    try:
        store, _, _ = next(rendezvous("env://", world.rank, world.size, timeout=job.timeout))
    except Exception as error:
        if "EADDRINUSE" in str(error):
            raise RunError(
                "expected a free port, got one in use",
                place=f"{where} (MASTER_ADDR and MASTER_PORT)",
                hint="choose another: torchrun --master-port PORT, or --rdzv-endpoint HOST:PORT",
            ) from error
        raise RunError(
            f"expected {world.size} ranks to meet within {seconds:g} s, got rank {world.rank} waiting: "
            f"{_first_sentence(error)}",
            place=where,
            hint="start every node, check that they reach that address, or wait longer with {timeout=}",
        ) from error
    store = dist.PrefixStore(f"dpdemo/{next(_runs)}", store)  # type: ignore[attr-defined]  # as documented
    store.set_timeout(job.timeout)
    return store


def _run_epoch(
    rank: Rank, progress: Progress | None, write: Callable[[Event], object] = lambda _: None
) -> RankRecord:
    """Return what this rank saw of the epoch; at Ctrl-C write what it saw until then."""
    built = build(rank.job.config, placement(rank.device))
    config = with_own_size(rank.job.config, built)
    indices = drawn_by(config, rank.world)
    rows = distribute_epoch(config, rank.world.size).full.sizes()[rank.world.rank]
    loader = load(config, built, len(indices), rows, torch.tensor(indices, dtype=torch.int64, device="cpu"))

    def record(batches: tuple[BatchGroup, ...]) -> RankRecord:
        return RankRecord(config.values(), rank.place, rows, batches, indices)

    try:
        devices = Devices([str(rank.device)])
        return record(run_epoch(built, config, devices, loader, Callbacks(progress, _learner(built))))
    except EpochInterrupted as interrupt:
        write(record(interrupt.batches))
        raise


def drawn_by(config: Config, world: World) -> tuple[int, ...]:
    """List the samples that torch's sampler gives this rank."""
    sampler: DistributedSampler[int] = DistributedSampler(
        range(config.data_size),  # type: ignore[arg-type]  # it only asks for the length
        world.size,
        world.rank,
        shuffle=config.shuffle,
        seed=config.seed,
        drop_last=config.sampler_drop_last,
    )
    return tuple(sampler)


def placement(device: torch.device) -> Placement:
    """Describe how DDP wraps a module on a rank's device."""

    def wrap(module: nn.Module) -> nn.Module:
        device_ids = [device.index] if device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=device_ids)

    return Placement(wrap, device, device)


def _learner(built: BuiltModel) -> Any:
    """Make a backward of each output, so that DDP's all-reduce really happens."""
    loss = make_loss("mean")

    def learn(output: Any) -> None:
        built.model.zero_grad(set_to_none=True)
        loss(output).backward()  # type: ignore[no-untyped-call]

    return learn


def _exchanged(record: RankRecord, device: torch.device) -> list[RankRecord]:
    """Send a rank's record to all; torch.distributed's own `all_gather_object` needs NumPy."""
    mine = torch.frombuffer(bytearray(record.to_line()), dtype=torch.uint8)
    sizes = _all_gather(torch.tensor([len(mine)], device=device))
    longest = int(max(sizes))
    lines = _all_gather(nn.functional.pad(mine, (0, longest - len(mine))).to(device))
    return [
        RankRecord.from_line(bytes(line[: int(size)].tolist()))
        for line, size in zip(lines, sizes, strict=True)
    ]


def _all_gather(mine: torch.Tensor) -> list[torch.Tensor]:
    found = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(found, mine)
    return found


@contextlib.contextmanager
def one_failure(rank: Rank) -> Iterator[None]:
    """Turn whatever goes wrong into the one failure that a user should see, or into silence."""
    try:
        with users_code():
            yield
    except KeyboardInterrupt:
        _stopped(rank)  # ranks that lose their connection to this one then need not report it
        raise
    except Exception as error:
        number = _stopped(rank)
        if number is None:
            # The store went down with its rank: by Ctrl-C, perhaps, which reaches one rank after the other
            time.sleep(_CTRL_C_SECONDS)
        elif number > 1:
            # torchrun stops all ranks when one ends: that must be the one that has something to say
            time.sleep(_LAST_WORDS_SECONDS)
            raise PeerFailedError(f"{rank.place} stopped: another rank failed first") from error
        raise _worded(error, rank) from error


def _stopped(rank: Rank) -> int | None:
    """Return how many ranks have stopped before the end, this one included; None where the store is gone."""
    if rank.is_ours:
        return 1
    try:
        rank.store.set_timeout(timedelta(seconds=5))
        number: int = rank.store.add("dpdemo/failed", 1)
    except Exception:  # noqa: BLE001 - what it raises depends on the kind of store, and says nothing more
        return None
    return number


def _worded(error: Exception, rank: Rank) -> DpdemoError:
    cause = error.__cause__ if isinstance(error, DpdemoError) else error
    if isinstance(cause, Exception) and is_of_a_peer(cause):
        seconds = rank.job.timeout.total_seconds()
        return PeerLostError(
            f"{rank.place}: expected {rank.world.size} ranks to the end, got a lost connection: "
            f"{_first_sentence(cause)}",
            hint="another rank ended without a word (killed, or out of memory?), "
            f"or kept this one waiting for {seconds:g} s ({{timeout=}})",
        )
    if isinstance(error, DpdemoError):
        kind = UsageError if isinstance(error, UsageError) else RunError
        return kind(f"{rank.place}: {error.message}", key=error.key, hint=error.raw_hint)
    return RunError(
        f"{rank.place}: expected `{rank.job.config.model}` to run under DDP, got {take_apart(error)}"
    )


def is_of_a_peer(error: BaseException) -> bool:
    """Return whether an exception is a broken or timed-out connection to another rank."""
    kinds = (dist.DistNetworkError, dist.DistStoreError, dist.DistBackendError)
    return isinstance(error, kinds) or is_lost(error)


def _first_sentence(error: BaseException) -> str:
    """Take the first sentence of an exception of torch.distributed, without the place in its C++ source."""
    text = re.sub(r"\A\[[^]]*\.cc:\d+\] ", "", str(error))
    return text.partition("\n")[0].partition(". ")[0][:200]
