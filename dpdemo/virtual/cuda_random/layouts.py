"""The kernels that lay their numbers out in their own way: dropout and `randperm`.

Where elements are contiguous the fused dropout (ATen/native/cuda/Dropout.cu, 2.13) reads 16 bytes of
them at a time, and a thread's uniform numbers serve neighbours; elsewhere its numbers are spread as in
launch.py.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.cuda_random import curand, fills
from dpdemo.virtual.cuda_random.launch import (
    CPU,
    Drawing,
    Place,
    as_dtype,
    by_stride,
    chunks,
    computed_in,
    empty,
    fill,
    rounded,
)
from dpdemo.virtual.cuda_random.philox import words

if TYPE_CHECKING:
    from torch import Tensor

    from dpdemo.virtual.cuda_random.philox import Word

_aten = torch.ops.aten
_tensor: Any = torch.tensor  # taken before it is replaced
_VECTOR_BYTES = 16
_SHORT, _LONG = 32, 64


def native_dropout(tensor: Tensor, keep: float, drawing: Drawing) -> tuple[Tensor, Tensor]:
    """Return `tensor` with each element kept with probability `keep` and scaled up, and the mask of them."""
    mask: Tensor = _aten.empty_like.default(tensor, dtype=torch.bool)
    if not tensor.numel():
        return tensor.clone(), mask
    wide = computed_in(tensor.dtype)
    chance = rounded(keep, wide)
    vector = _vector_size(tensor)
    if vector == 1:
        fill(mask, curand.UNIFORM, lambda numbers: numbers < chance, drawing)
    else:
        _fill_vectors(mask, vector, chance, drawing)
    scale = rounded(1 / chance if chance else torch.inf, wide)
    numbers = as_dtype(mask.view(torch.uint8), wide)  # a mask of bool is converted ten times as slowly
    kept = numbers.mul_(as_dtype(tensor, wide)).mul_(scale)
    return as_dtype(kept, tensor.dtype), mask


def _vector_size(tensor: Tensor) -> int:
    """Return how many elements a thread reads at a time (`get_vector_size`).

    A card's storages begin at a multiple of 512 bytes, so where a view begins in its storage decides.
    """
    if not tensor.permute(by_stride(tensor)).is_contiguous():
        return 1
    vector = _VECTOR_BYTES // tensor.element_size()
    while vector > 1 and (tensor.storage_offset() % vector or tensor.numel() % vector):
        vector //= 2
    return vector


def _fill_vectors(mask: Tensor, vector: int, chance: float, drawing: Drawing) -> None:
    """Fill `mask` in memory's order as `fused_dropout_kernel_vec` does."""
    bound = _first_word_of(chance)
    flat = mask.as_strided((mask.numel(),), (1,), mask.storage_offset())
    numel = flat.numel()
    place, threads = drawing.launch(numel, 4)
    per_vector = -(-vector // 4)  # calls of the generator
    for turn, start in enumerate(range(0, numel, threads * vector)):
        calls = range(turn * per_vector, (turn + 1) * per_vector)
        for first, last in chunks(min(threads, -(-(numel - start) // vector))):
            part = flat.narrow(0, start + first * vector, (last - first) * vector).view(-1, vector)
            lanes = [word for call in calls for word in place.words(call, first, last)]
            for lane, word in enumerate(lanes[:vector]):
                _aten.lt.Scalar_out(word, bound, out=part.select(1, lane))


@functools.lru_cache(64)
def _first_word_of(chance: float) -> int:
    """Return the first word whose uniform number is no longer below `chance`: numbers grow with their words.

    So words are compared as they are, and no number is made of them.
    """
    low, high = 0, 2**32
    while low < high:
        middle = (low + high) // 2
        word = _aten.full.default([1], middle, dtype=torch.int64, device=CPU)
        number = next(iter(curand.UNIFORM.numbers((word,) * 4)))
        low, high = (middle + 1, high) if number.item() < chance else (low, middle)
    return low


def randperm(n: int, dtype: torch.dtype, drawing: Drawing) -> Tensor:
    """Return the numbers from 0 to `n` - 1 in the order of random keys (ATen/native/cuda/Randperm.cu).

    The keys have so few bits that a tenth of all permutations have two alike; those islands are shuffled on
    their own, each by the thread of its first place.
    """
    _aten.randperm.default(min(n, 0), device=CPU)  # refuses a negative number
    numbers: Tensor = _aten.arange.default(n, dtype=dtype, device=CPU)
    if n == 0:
        return numbers
    size = float(n)  # all keys differ with a probability of nine tenths
    bits = min(_LONG, math.ceil(math.log2(size - (6 * size * size + 1) / (12 * math.log(0.9)))))
    keys = _keys(n, bits, drawing)
    keys, order = keys.sort(stable=True)
    place = drawing.stream.take(n)
    for first, size in _islands(keys):
        island = order.narrow(0, first, size)
        shuffled = _shuffled(island.tolist(), place, first)
        _aten.copy_.default(island, _tensor(shuffled, device=CPU))
    return numbers[order]


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
