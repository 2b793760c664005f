"""Which tensors are where at one point of a batch's way, and which bytes were copied to get there.

Bytes moved are those copied from one device to another, as the ledger of virtual GPUs counts them
(`virtual/ledger.py`): a chunk that is on its device already moves none, and so does a copy within one device.
Real GPUs keep no ledger; there the same bytes are read off the tensors before and after a step. A test
compares the two.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dpdemo.observation.tree import named_tensors
from dpdemo.reports.explanation import Move, Part, Step, StepName

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


class Meter:
    """Says what a step moved: by the ledger where there is one, else by the tensors before and after it."""

    def __init__(self, gpus: "VirtualGpus | None") -> None:
        self._gpus = gpus
        self._before = self._read()

    @property
    def is_ledger(self) -> bool:
        """Whether there is a ledger."""
        return self._gpus is not None

    def start(self) -> None:
        """Count from here on."""
        self._before = self._read()

    def step(self, name: StepName, call: str, given: Sequence[Part], made: Sequence[Part]) -> Step:
        """Note a step that has just been taken, and count the next one from here."""
        moved = moved_by_tensors(name, given, made) if self._gpus is None else self._moved_by_ledger()
        self._before = self._read()
        return Step(name, call, tuple(given), tuple(made), moved)

    def _read(self) -> dict[tuple[int | None, int | None], int]:
        return {} if self._gpus is None else self._gpus.bytes_moved_between

    def _moved_by_ledger(self) -> tuple[Move, ...]:
        return _merged(
            Move(_name(source), _name(target), total - self._before.get((source, target), 0))
            for (source, target), total in self._read().items()
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
