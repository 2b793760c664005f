"""The tensors of a step and the bytes copied for it.

Bytes moved are those copied from one device to another, as the ledger of virtual GPUs counts them
(`virtual/ledger.py`): a chunk that is on its device already moves none, and so does a copy within one device.
Real GPUs keep no ledger; there the same bytes are read off the tensors before and after a step. A test
compares the two.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dpdemo.reports.explanation import Move, Part, StepName
from dpdemo.watching.tree import named_tensors

if TYPE_CHECKING:
    from dpdemo.virtual import VirtualGpus


def part(label: str, value: object) -> Part:
    """Note the tensors of a structure."""
    found = named_tensors(value)
    shapes = tuple((path, tuple(tensor.shape)) for path, tensor in found)
    return _part(label, [tensor for _, tensor in found], shapes)


def module_part(label: str, module: nn.Module, original: nn.Module) -> Part:
    """Count the parameters and buffers of a module, or of one of its replicas."""
    return _part(label, module_tensors(module, original), ())


def module_tensors(module: nn.Module, original: nn.Module) -> list[torch.Tensor]:
    """List the parameters and buffers of a replica, each once.

    A replica's parameters are plain attributes (`replicate` in `torch/nn/parallel/replicate.py`), so it is
    the original that knows their names.
    """
    found: dict[int, torch.Tensor] = {}
    for copy, source in zip(module.modules(), original.modules(), strict=True):
        for name in (*source._parameters, *source._buffers):  # noqa: SLF001 - as replicate.py reads them
            tensor = getattr(copy, name)
            if tensor is not None:
                found.setdefault(id(tensor), tensor)
    return list(found.values())


def _part(label: str, tensors: Sequence[torch.Tensor], shapes: Any) -> Part:
    devices = ", ".join(dict.fromkeys(str(tensor.device) for tensor in tensors))
    return Part(label, devices, shapes, len(tensors), sum(tensor.nbytes for tensor in tensors))


Moves = tuple[Move, ...] | None


class Meter:
    """Reads the ledger of virtual GPUs between two steps; real GPUs have none."""

    def __init__(self, gpus: "VirtualGpus | None") -> None:
        self._gpus = gpus
        self._before: dict[tuple[int | None, int | None], int] = {}

    @property
    def is_ledger(self) -> bool:
        """Whether there is a ledger."""
        return self._gpus is not None

    def take(self) -> Moves:
        """Return the bytes copied since the last call, or None without a ledger."""
        if self._gpus is None:
            return None
        before, self._before = self._before, dict(self._gpus.bytes_moved_between)
        return _merged(
            Move(_name(source), _name(target), total - before.get((source, target), 0))
            for (source, target), total in self._before.items()
        )


def moved_by_tensors(name: StepName, given: Sequence[Part], made: Sequence[Part]) -> tuple[Move, ...]:
    """Read off what scatter and replicate sent out and gather brought together."""
    if name in {"scatter", "replicate"}:
        return _merged(Move(given[0].device, piece.device, piece.num_bytes) for piece in made)
    if name == "gather":
        return _merged(Move(piece.device, made[0].device, piece.num_bytes) for piece in given)
    return ()


def _merged(moves: Iterable[Move]) -> tuple[Move, ...]:
    sums: dict[tuple[str, str], int] = {}
    for move in moves:
        if move.source != move.target and move.num_bytes:
            pair = (move.source, move.target)
            sums[pair] = sums.get(pair, 0) + move.num_bytes
    return tuple(
        Move(*pair, sums[pair]) for pair in sorted(sums, key=lambda pair: (_order(pair[0]), _order(pair[1])))
    )


def _name(index: int | None) -> str:
    return "cpu" if index is None else f"cuda:{index}"


def _order(device: str) -> tuple[str, int]:
    kind, _, index = device.partition(":")
    return kind, int(index or 0)
