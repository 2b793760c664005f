"""Which tensors were cut into which chunks, by the step of autograd that every way to scatter goes through.

Programs with a DataParallel of their own call `Scatter.apply` with sizes of their choice, as CornerNet and
CenterNet do. From the chunks that reach the replicas the batch is put together again. No tensor is kept
alive.
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.watching.tree import rebuild, tensors_in

_MOST_CHUNKS = 4096
"""A program may scatter, and never apply."""


class Batch(NamedTuple):
    """A batch that was cut: the arguments of the call, along which dimension, and the rows of each chunk."""

    args: Any
    kwargs: Any
    dim: int
    rows: tuple[int, ...]

    @property
    def shares(self) -> tuple[int, ...]:
        """The rows of each chunk, where they are not those that DataParallel makes."""
        usual = split_batch(sum(self.rows), len(self.rows)).sizes()
        return () if tuple(usual) == self.rows else self.rows


@dataclass(frozen=True)
class _Chunk:
    """A chunk: of which tensor, along which dimension, and its number among them."""

    tensor: "weakref.ref[torch.Tensor]"
    source: "weakref.ref[torch.Tensor]"
    dim: int
    number: int


class Cuts:
    """The chunks that a thread has made, by their identity."""

    def __init__(self) -> None:
        self._chunks: dict[int, _Chunk] = {}

    def note(self, source: torch.Tensor, chunks: Sequence[torch.Tensor], dim: int) -> None:
        """Note the chunks of a tensor."""
        for number, chunk in enumerate(chunks):
            self._chunks.pop(id(chunk), None)  # what lay there before
            self._chunks[id(chunk)] = _Chunk(weakref.ref(chunk), weakref.ref(source), dim, number)
        while len(self._chunks) > _MOST_CHUNKS:
            del self._chunks[next(iter(self._chunks))]

    def joined(self, delivered: Sequence[tuple[Any, Any]]) -> Batch | None:
        """Put the batch together from what each replica gets; None where that is not made of its chunks."""
        of_each = [
            [self._of(leaf, index) for leaf in tensors_in(pair)] for index, pair in enumerate(delivered)
        ]
        first = of_each[0] if of_each else []
        sources = [[None if one is None else one.source() for one in each] for each in of_each]
        if not first or any(source is None for each in sources for source in each):
            return None
        dim, *others = {one.dim for one in first if one is not None}
        if others or any(list(map(id, each)) != list(map(id, sources[0])) for each in sources):
            return None
        left = iter(sources[0])
        args, kwargs = rebuild(
            delivered[0], lambda leaf: next(left) if isinstance(leaf, torch.Tensor) else leaf
        )
        return Batch(args, kwargs, dim, _rows(delivered, dim))

    def _of(self, leaf: torch.Tensor, index: int) -> _Chunk | None:
        """Find what a replica's tensor was cut from, if it is its own chunk."""
        found = self._chunks.get(id(leaf))
        return found if found is not None and found.tensor() is leaf and found.number == index else None


def is_in_chunks(value: object, num_gpus: int) -> bool:
    """Return whether a value is a list of one part for each GPU, each of them on its own GPU."""
    if not isinstance(value, (list, tuple)) or not 2 <= len(value) <= num_gpus:
        return False
    homes = [{leaf.device for leaf in tensors_in(part)} for part in value]
    is_on_gpus = all(device.type == "cuda" for device in set.union(*homes))
    return is_on_gpus and all(len(home) == 1 for home in homes) and len(set.union(*homes)) == len(homes)


def _rows(delivered: Sequence[tuple[Any, Any]], dim: int) -> tuple[int, ...]:
    return tuple(next(leaf.size(dim) for leaf in tensors_in(pair)) for pair in delivered)
