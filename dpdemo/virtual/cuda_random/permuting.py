"""`randperm` of CUDA (ATen/native/cuda/Randperm.cu): numbers in the order of random keys.

The keys have so few bits that a tenth of all permutations have two alike; those islands are shuffled on their
own, each by the thread of its first place.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.cuda_random import fills
from dpdemo.virtual.cuda_random.launch import CPU, empty
from dpdemo.virtual.cuda_random.philox import words

if TYPE_CHECKING:
    from torch import Tensor

    from dpdemo.virtual.cuda_random.launch import Drawing, Place
    from dpdemo.virtual.cuda_random.philox import Word

_aten = torch.ops.aten
_tensor: Any = torch.tensor  # taken before it is replaced
_SHORT, _LONG = 32, 64


def randperm(n: int, dtype: torch.dtype, drawing: Drawing) -> Tensor:
    """Return the numbers from 0 to `n` - 1 in the order in which a card would."""
    _aten.randperm.default(min(n, 0), device=CPU)  # refuses a negative number
    numbers: Tensor = _aten.arange.default(n, dtype=dtype, device=CPU)
    if n == 0:
        return numbers
    bits = _num_bits(n)
    keys = _keys(n, bits, drawing)
    keys, order = keys.sort(stable=True)
    place = drawing.stream.take(n)
    for first, size in _islands(keys):
        island = order.narrow(0, first, size)
        shuffled = _shuffled(island.tolist(), place, first)
        _aten.copy_.default(island, _tensor(shuffled, device=CPU))
    return numbers[order]


def _num_bits(n: int) -> int:
    """Return how long keys must be for all to differ with a probability of nine tenths."""
    size = float(n)
    return min(_LONG, math.ceil(math.log2(size - (6 * size * size + 1) / (12 * math.log(0.9)))))


def _keys(n: int, bits: int, drawing: Drawing) -> Tensor:
    """Return the keys' lowest `bits` bits, such that they sort as a radix sort does it."""
    dtype = torch.int32 if bits <= _SHORT else torch.int64
    limits = torch.iinfo(dtype)
    keys = empty([n], dtype)
    fills.random(keys, limits.min, limits.max, drawing)
    return keys if bits in (_SHORT, _LONG) else keys.long() & 2**bits - 1


def _islands(keys: Tensor) -> list[tuple[int, int]]:
    """Return the start and the size of each run of equal keys."""
    _, sizes = torch.unique_consecutive(keys, return_counts=True)
    starts = sizes.cumsum(0) - sizes
    several = sizes > 1
    return list(zip(starts[several].tolist(), sizes[several].tolist(), strict=True))


def _shuffled(island: list[int], place: Place, thread: int) -> list[int]:
    """Shuffle from the end, with one word of the thread's sequence for each step."""
    drawn: list[Word] = []
    for step, at in enumerate(range(len(island) - 1, 0, -1)):
        if not step % 4:
            drawn += words(place.counter + step // 4, thread, place.seed)
        other = int(drawn[step] % (at + 1))
        island[at], island[other] = island[other], island[at]
    return island
