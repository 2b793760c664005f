"""Handing objects from rank to rank, as bytes in tensors.

torch.distributed's own `gather_object` and `broadcast_object_list` need NumPy, which need not be there
(`_tensor_to_object`, torch/distributed/distributed_c10d.py). The ranks are those of one run, so each trusts
what another one pickled.
"""

import pickle
from typing import TypeVar

import torch
import torch.distributed as dist

Value = TypeVar("Value")


def gather(value: Value, device: torch.device) -> list[Value] | None:
    """Collect every rank's value at rank 0, in the order of the ranks; None elsewhere.

    Args:
        value: what this rank hands over.
        device: where this rank's tensors lie: a GPU under NCCL, the CPU under gloo.

    """
    data = _as_tensor(value)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(data)], device=device))
    longest = max(int(size) for size in sizes)
    padded = torch.nn.functional.pad(data, (0, longest - len(data))).to(device)
    parts = [torch.empty_like(padded) for _ in sizes] if dist.get_rank() == 0 else None
    dist.gather(padded, parts)
    if parts is None:
        return None
    return [_as_value(part[: int(size)]) for part, size in zip(parts, sizes, strict=True)]


def broadcast(value: Value | None, device: torch.device) -> Value:
    """Hand the value of rank 0 to all ranks.

    Args:
        value: what rank 0 hands over; that of other ranks is not read.
        device: as for `gather`.

    """
    data = _as_tensor(value).to(device)
    size = torch.tensor([len(data)], device=device)
    dist.broadcast(size, 0)
    if dist.get_rank() != 0:
        data = torch.empty(int(size), dtype=torch.uint8, device=device)
    dist.broadcast(data, 0)
    found: Value = _as_value(data)
    return found


def _as_tensor(value: object) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)


def _as_value(data: torch.Tensor) -> Value:  # type: ignore[type-var] # pickle knows no types
    buffer = bytearray(len(data))
    torch.frombuffer(buffer, dtype=torch.uint8).copy_(data)
    return pickle.loads(buffer)  # type: ignore[no-any-return] # noqa: S301
