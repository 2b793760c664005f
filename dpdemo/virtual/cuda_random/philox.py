"""Philox4x32-10, the generator behind PyTorch's CUDA devices, on 64-bit integer tensors.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011: ten rounds of multiplications of 32 by
32 bits scramble a counter of 128 bits under a key of 64. A word is the low half of a 64-bit integer, so that
a product fits; its sign does not matter, since only bits are taken from it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any

    from torch import Tensor

    Word = Any  # bits 0 to 31: a tensor with a word for each thread, or a number
    State = tuple[Word, Word, Word, Word]

ROUNDS = 10
LOW = 2**32 - 1
_FIRST_FACTOR, _SECOND_FACTOR = 0xD2511F53, 0xCD9E8D57
_FIRST_STEP, _SECOND_STEP = 0x9E3779B9, 0xBB67AE85  # the golden ratio, and the square root of 3 less 1
_full_like = torch.ops.aten.full_like.default
_tensor: Any = torch.tensor  # taken before it is replaced


def words(counter: int, sequences: Word, seed: int) -> State:
    """Return the four words at place `counter` of each thread's sequence.

    Args:
        counter: which four; cuRAND's offset divided by 4.
        sequences: the threads' numbers below 2**32, which cuRAND calls subsequences.
        seed: the key, below 2**64.

    """
    if isinstance(sequences, int):
        return scrambled((counter & LOW, counter >> 32, sequences, 0), seed)
    first, second, fourth = (_full_like(sequences, word) for word in (counter & LOW, counter >> 32, 0))
    return scrambled((first, second, sequences, fourth), seed)


def scrambled(counter: State, key: int) -> State:
    """Return what Philox makes of `counter`, four numbers or four tensors, under `key`."""
    if isinstance(counter[0], int):
        return _scrambled_numbers(counter, key)
    high, low = torch.stack(counter[::2]), torch.stack(counter[1::2])
    first, third = high.unbind()
    spare = torch.empty_like(low)
    products = [(low, *low.unbind()), (spare, *spare.unbind())]
    for column in _key_columns(key):
        low = products[0][0]
        products.reverse()
        product, upper, lower = products[0]
        torch.mul(third, _SECOND_FACTOR, out=upper)  # where the next round wants it
        torch.mul(first, _FIRST_FACTOR, out=lower)
        torch.bitwise_right_shift(product, 32, out=high)
        high.bitwise_xor_(low).bitwise_xor_(column).bitwise_and_(LOW)
    second, fourth = products[0][0].bitwise_and_(LOW).unbind()
    return first, second, third, fourth


def _scrambled_numbers(counter: State, key: int) -> State:
    """Scramble plain numbers: for a small tensor, calls would cost the most."""
    first, second, third, fourth = counter
    for left_key, right_key in _round_keys(key):
        left, right = first * _FIRST_FACTOR, third * _SECOND_FACTOR
        first, second = right >> 32 ^ second ^ left_key, right & LOW
        third, fourth = left >> 32 ^ fourth ^ right_key, left & LOW
    return first, second, third, fourth


@functools.lru_cache(64)
def _key_columns(key: int) -> list[Tensor]:
    return [_tensor(pair, dtype=torch.int64, device="cpu").unsqueeze(1) for pair in _round_keys(key)]


@functools.lru_cache(64)
def _round_keys(key: int) -> list[tuple[int, int]]:
    left, right = key & LOW, key >> 32 & LOW
    return [(left + turn * _FIRST_STEP & LOW, right + turn * _SECOND_STEP & LOW) for turn in range(ROUNDS)]
