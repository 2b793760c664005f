"""Two ranks on one GPU: NCCL refuses them where it connects the ranks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from dpdemo.virtual.state import Session

_connected: set[tuple[str, int]] = set()
_PATIENCE = timedelta(seconds=30)


def check_own_gpu(session: Session, group: Any, index: int | None) -> None:
    """Refuse two ranks on one GPU when NCCL would connect them, at a group's first collective on a GPU."""
    if index is None or (group.group_name, index) in _connected or group.size() == 1:
        return
    mine, store = str(session.visible[index]), torch.distributed.distributed_c10d._world.pg_map[group][1]
    number = sum(connected == group.group_name for connected, _ in _connected)
    _connected.add((group.group_name, index))
    store.set(f"gpu {number} of {group.rank()}", mine)
    for rank in range(group.size()):
        if rank == group.rank():
            continue
        key = f"gpu {number} of {rank}"
        try:
            if number:
                _await(store, key, rank, index)
            theirs = store.get(key).decode()
        except torch.distributed.DistNetworkError:
            return  # the rank that hosts the store is done with this collective, and has ended
        if theirs == mine:
            raise torch.distributed.DistBackendError(
                "NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)\n"
                f"Duplicate GPU detected : rank {group.rank()} and rank {rank} both on CUDA device {mine}; "
                "each rank needs torch.cuda.set_device(LOCAL_RANK) before its first collective"
            )


def _await(store: Any, key: str, rank: int, index: int) -> None:
    """Wait until another rank, too, has come to a further GPU; NCCL would wait for ever."""
    try:
        store.wait([key], _PATIENCE)
    except torch.distributed.DistNetworkError:
        raise  # the store has ended with its rank, which says nothing of GPUs
    except RuntimeError as error:
        raise torch.distributed.DistBackendError(
            f"this rank begins a collective on cuda:{index} after others on another GPU, and rank {rank} "
            "does not: NCCL would connect them a second time, and hang"
        ) from error
