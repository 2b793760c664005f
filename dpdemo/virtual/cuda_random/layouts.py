"""The kernels that lay their numbers out in their own way: dropout and `randperm`.

Where elements are contiguous the fused dropout (ATen/native/cuda/Dropout.cu, 2.13) reads 16 bytes of
them at a time, and a thread's uniform numbers serve neighbours; elsewhere its numbers are spread as in
launch.py.
"""

import functools
import math

import torch
from torch import Tensor

from dpdemo.virtual.cuda_random import curand, fills
from dpdemo.virtual.cuda_random.launch import (
    CPU,
    NumberSource,
    as_dtype,
    by_stride,
    chunks,
    computed_in,
    empty,
    fill,
    rounded,
)

_aten = torch.ops.aten
_VECTOR_BYTES = 16
_SHORT, _LONG = 32, 64


def native_dropout(tensor: Tensor, keep: float, drawing: NumberSource) -> tuple[Tensor, Tensor]:
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


def _fill_vectors(mask: Tensor, vector: int, chance: float, drawing: NumberSource) -> None:
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


def randperm(n: int, dtype: torch.dtype, drawing: NumberSource) -> Tensor:
    """Return the numbers from 0 to `n` - 1 in the order of random keys (ATen/native/cuda/Randperm.cu).

    The keys have so few bits that a tenth of all permutations have two alike. The CPU's generator draws the
    order of numbers with equal keys; a card's threads draw other ones.
    """
    _aten.randperm.default(min(n, 0), device=CPU)  # refuses a negative number
    size = float(n)  # all keys differ with a probability of nine tenths
    bits = min(_LONG, math.ceil(math.log2(size - (6 * size * size + 1) / (12 * math.log(0.9)))))
    keys = _keys(n, bits, drawing)
    generator = drawing.stream.take(n).cpu_generator()
    shuffled: Tensor = _aten.randperm.generator(n, generator=generator, device=CPU)
    return as_dtype(shuffled[keys[shuffled].argsort(stable=True)], dtype)


def _keys(n: int, bits: int, drawing: NumberSource) -> Tensor:
    """Return the keys' lowest `bits` bits, such that they sort as a radix sort does it."""
    dtype = torch.int32 if bits <= _SHORT else torch.int64
    limits = torch.iinfo(dtype)
    keys = empty([n], dtype)
    fills.random(keys, limits.min, limits.max, drawing)
    return keys if bits in (_SHORT, _LONG) else keys.long() & 2**bits - 1
