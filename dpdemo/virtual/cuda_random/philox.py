"""Philox4x32-10, the generator behind PyTorch's CUDA devices, on 64-bit integer tensors.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011: ten rounds of multiplications of 32 by
32 bits scramble a counter of 128 bits under a key of 64. A word lies in the low half of a 64-bit integer, so
that a product fits; its sign does not matter, since only bits are taken from it. A word of the counter that
is the same for all is a plain Python number, which makes the first rounds cheaper and serves single numbers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any

    from torch import Tensor

    Word = Any  # bits 0 to 31: a tensor, with one for each counter, or a number
    State = tuple[Word, Word, Word, Word]
    Keys = tuple[tuple[int, int], ...]

ROUNDS = 10
LOW = 2**32 - 1
_FIRST_FACTOR, _SECOND_FACTOR = 0xD2511F53, 0xCD9E8D57
_FIRST_STEP, _SECOND_STEP = 0x9E3779B9, 0xBB67AE85  # the golden ratio, and the square root of 3 less 1
_ROUNDS_OF_NUMBERS = 3  # it takes this many rounds until no word is the same for all
_tensor: Any = torch.tensor  # taken before it is replaced


def words(counter: int, sequences: Word, seed: int) -> State:
    """Return the four words at place `counter` of each thread's sequence.

    Args:
        counter: which four; cuRAND's offset divided by 4.
        sequences: the threads' numbers below 2**32, which cuRAND calls subsequences.
        seed: the key, below 2**64.

    """
    return scrambled((counter & LOW, counter >> 32, sequences, 0), seed)


def scrambled(counter: State, key: int) -> State:
    """Return what Philox makes of `counter` under `key`."""
    if isinstance(counter[2], int) and isinstance(counter[0], int):
        return _scrambled_numbers(counter, key)
    state = counter
    for pair in _round_keys(key)[:_ROUNDS_OF_NUMBERS]:
        state = _round(state, pair)
    return _scrambled_together(state, key)


def _scrambled_numbers(counter: State, key: int) -> State:
    """Scramble plain numbers, all in one place: for a small tensor calls would cost the most."""
    first, second, third, fourth = counter
    for one, other in _round_keys(key):
        left, right = first * _FIRST_FACTOR, third * _SECOND_FACTOR
        first, second = right >> 32 ^ second ^ one, right & LOW
        third, fourth = left >> 32 ^ fourth ^ other, left & LOW
    return first, second, third, fourth


def _round(state: State, key: tuple[int, int]) -> State:
    first, second, third, fourth = state
    left, right = first * _FIRST_FACTOR, third * _SECOND_FACTOR
    return _mixed(right, second, key[0]), _as_word(right), _mixed(left, fourth, key[1]), _as_word(left)


def _mixed(product: Word, word: Word, key: int) -> Word:
    """Return the high half of `product`, crossed with `word` and `key`; plain numbers are crossed first."""
    high = product >> 32
    if isinstance(word, int):
        word ^= key
    else:
        high ^= key
    high ^= word
    high &= LOW
    return high


def _as_word(product: Word) -> Word:
    """Return the low half of `product`; on a tensor the high half stays, to be cut off once at the end."""
    return product & LOW if isinstance(product, int) else product


def _scrambled_together(state: State, key: int) -> State:
    """Go on with rows of two words each, which halves the number of operations.

    The rows are the first and the third word, and beside them the second and the fourth. A product is made of
    the other row, so that it lies where the next round wants it.
    """
    high = torch.stack((state[0], state[2]))
    low = torch.stack((state[1], state[3]))
    first, third = high.unbind()
    spare = torch.empty_like(low)
    products = [(low, *low.unbind()), (spare, *spare.unbind())]
    for column in _key_columns(key):
        low = products[0][0]
        products.reverse()
        product, upper, lower = products[0]
        torch.mul(third, _SECOND_FACTOR, out=upper)
        torch.mul(first, _FIRST_FACTOR, out=lower)
        torch.bitwise_right_shift(product, 32, out=high)
        high.bitwise_xor_(low).bitwise_xor_(column).bitwise_and_(LOW)
    second, fourth = products[0][0].bitwise_and_(LOW).unbind()
    return first, second, third, fourth


@functools.lru_cache(64)
def _key_columns(key: int) -> list[Tensor]:
    """Return the keys of the rounds that are done on rows, one above the other."""
    return [
        _tensor(pair, dtype=torch.int64, device="cpu").unsqueeze(1)
        for pair in _round_keys(key)[_ROUNDS_OF_NUMBERS:]
    ]


@functools.lru_cache(64)
def _round_keys(key: int) -> Keys:
    one, other = key & LOW, key >> 32 & LOW
    keys = []
    for _ in range(ROUNDS):
        keys.append((one, other))
        one, other = one + _FIRST_STEP & LOW, other + _SECOND_STEP & LOW
    return tuple(keys)
