"""One rank of DistributedDataParallel: genuine sampler and wrapper, forward, backward, and the gathering.

It is the same in a process of ours and in one of torchrun's. The first rank that fails claims the failure in
the store that all ranks share; the broken all-reduces of the others are not reported.
"""

import contextlib
import pickle
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

from dpdemo.config.fields import Config
from dpdemo.config.ranks import distribute_epoch
from dpdemo.errors import DpdemoError, PeerFailedError, RunError, UsageError
from dpdemo.models.failure import take_apart, users_code
from dpdemo.models.losses import make_loss
from dpdemo.models.modules import BuiltModel, Placement, build
from dpdemo.results.devices import Devices
from dpdemo.results.distribution import RankPlace
from dpdemo.results.split import SplitReport
from dpdemo.running.ddp.records import RankRecord, merge
from dpdemo.running.ddp.world import World
from dpdemo.running.epoch import Progress, Watch, load, run_epoch, with_own_size
from dpdemo.running.interrupts import EpochInterrupted, RankInterrupted

_CLAIM = "dpdemo/failed"
_PART_BYTES = 4 << 20
"""A TCPStore refuses values of more than 8 MiB."""
_CTRL_C_SECONDS = 1.0
_LAST_WORDS_SECONDS = 10.0


class PeerLostError(RunError):
    """Raised in the first rank that loses its connection to another one, which reported nothing."""


@dataclass(frozen=True)
class Rank:
    """A rank on its device, with the store that it shares with the others."""

    world: World
    device: torch.device
    store: Any  # a torch.distributed.Store, which torch exports at run time only
    timeout: timedelta

    @property
    def place(self) -> RankPlace:
        """The device of this rank."""
        return RankPlace(self.world.rank, self.world.node, self.world.local_rank, str(self.device))


def run_rank(config: Config, rank: Rank, progress: Progress | None = None) -> SplitReport:
    """Meet the other ranks and run one rank's part of the epoch; every rank returns the report of all.

    Raises:
        RunError: if this rank fails, with its place and the user's own frames.
        PeerFailedError: if another rank failed first.
        RankInterrupted: on Ctrl-C, with what this rank saw until then.

    """
    with claiming_failures(rank, config):
        if rank.device.type == "cuda":
            torch.cuda.set_device(rank.device)
        dist.init_process_group(
            "nccl" if rank.device.type == "cuda" else "gloo",
            store=dist.PrefixStore("dpdemo/group", rank.store),  # type: ignore[attr-defined]  # as documented
            rank=rank.world.rank,
            world_size=rank.world.size,
            timeout=rank.timeout,
        )
        report = _run_epoch(config, rank, progress)
        dist.destroy_process_group()
        return report


def _run_epoch(config: Config, rank: Rank, progress: Progress | None) -> SplitReport:
    world = rank.world
    built = build(config, placement(rank.device))
    config = with_own_size(config, built)
    indices = drawn_by(config, world)
    rows = distribute_epoch(config, world.size).full.sizes()[world.rank]
    loader = load(config, built, len(indices), rows, indices)

    devices = Devices([str(rank.device)])
    try:
        batches = run_epoch(built, config, devices, loader, Watch(progress, _learner(built)))
    except EpochInterrupted as interrupt:
        raise RankInterrupted(RankRecord(rank.place, rows, interrupt.batches, indices), config) from None
    return _report(config, rank, RankRecord(rank.place, rows, batches, indices))


def drawn_by(config: Config, world: World) -> torch.Tensor:
    """List the samples that torch's sampler gives this rank."""
    return torch.tensor(list(_sampler(config, world.size, world.rank)), dtype=torch.int64, device="cpu")


def _sampler(config: Config, num_ranks: int, rank: int) -> "DistributedSampler[int]":
    return DistributedSampler(
        range(config.data_size),  # type: ignore[arg-type]  # it only asks for the length
        num_ranks,
        rank,
        shuffle=config.shuffle,
        seed=config.seed,
        drop_last=config.sampler_drop_last,
    )


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


def _report(config: Config, rank: Rank, record: RankRecord) -> SplitReport:
    """Build the report on rank 0 from all ranks' records, and send it to all.

    They meet in the store: torch.distributed's own `gather_object` needs NumPy, which need not be installed.
    """
    store, world = rank.store, rank.world
    if world.rank == 0:
        others = (_get(store, f"dpdemo/record-{other}") for other in range(1, world.size))
        report = merge(config, [record, *others])
        _put(store, "dpdemo/report", report)
    else:
        _put(store, f"dpdemo/record-{world.rank}", record)
        report = _get(store, "dpdemo/report")
    # the store may be in rank 0's process, which must outlive all reads
    dist.barrier(device_ids=[rank.device.index] if rank.device.type == "cuda" else None)
    return report


def _put(store: Any, key: str, value: object) -> None:
    data = pickle.dumps(value)
    parts = [data[start : start + _PART_BYTES] for start in range(0, len(data), _PART_BYTES)]
    for number, part in enumerate(parts):
        store.set(f"{key}/{number}", part)
    store.set(key, str(len(parts)))


def _get(store: Any, key: str) -> Any:
    num_parts = int(store.get(key))
    data = b"".join(store.get(f"{key}/{number}") for number in range(num_parts))
    return pickle.loads(data)  # noqa: S301 - the ranks of one run trust each other


@contextlib.contextmanager
def claiming_failures(rank: Rank, config: Config) -> Iterator[None]:
    """Turn whatever goes wrong into the one failure that a user should see, or into silence."""
    try:
        with users_code():
            yield
    except DpdemoError as error:
        _claim(rank, error)
        raise _placed(error, rank) from error
    except KeyboardInterrupt:
        _count_claim(rank)  # ranks that lose their connection to this one then need not report it
        raise
    except Exception as error:
        _claim(rank, error)
        if is_of_a_peer(error):
            raise _lost(rank, error) from error
        raise RunError(
            f"{rank.place}: expected `{config.model}` to run under DDP, got {take_apart(error)}"
        ) from error


def _claim(rank: Rank, error: BaseException) -> None:
    number = _count_claim(rank)
    if number is None:
        # The store went down with its rank: by Ctrl-C, perhaps, which reaches one rank after the other
        time.sleep(_CTRL_C_SECONDS)
    elif number > 1:
        # The launcher stops all ranks when one ends: that must be the one that has something to say
        time.sleep(_LAST_WORDS_SECONDS)
        raise PeerFailedError(f"{rank.place} stopped: another rank failed first") from error


def _count_claim(rank: Rank) -> int | None:
    """Return how many ranks have stopped before the end, this one included; None where the store is gone."""
    try:
        rank.store.set_timeout(timedelta(seconds=5))
        number: int = rank.store.add(_CLAIM, 1)
    except Exception:  # noqa: BLE001 - what it raises depends on the kind of store, and says nothing more
        return None
    return number


def _placed(error: DpdemoError, rank: Rank) -> DpdemoError:
    if is_of_a_peer(error.__cause__):
        return _lost(rank, error.__cause__)
    kind = UsageError if isinstance(error, UsageError) else RunError
    return kind(f"{rank.place}: {error.message}", key=error.key, hint=error.raw_hint)


def _lost(rank: Rank, error: BaseException | None) -> PeerLostError:
    seconds = rank.timeout.total_seconds()
    return PeerLostError(
        f"{rank.place}: expected {rank.world.size} ranks to the end, got a lost connection: "
        f"{first_sentence(error)}",
        hint="another rank ended without a word (killed, or out of memory?), "
        f"or kept this one waiting for {seconds:g} s ({{timeout=}})",
    )


def is_of_a_peer(error: BaseException | None) -> bool:
    """Return whether an exception is a broken or timed-out connection to another rank."""
    if isinstance(error, (dist.DistNetworkError, dist.DistStoreError, dist.DistBackendError)):
        return True
    return isinstance(error, RuntimeError) and "gloo/transport" in str(error)


def first_sentence(error: BaseException | None) -> str:
    """Take the first sentence of an exception of torch.distributed, without the place in its C++ source."""
    text = re.sub(r"\A\[[^]]*\.cc:\d+\] ", "", str(error))
    return text.partition("\n")[0].partition(". ")[0][:200]
