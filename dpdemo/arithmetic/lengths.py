"""Orders of an epoch's lengths: shuffled as torch does, grouped as transformers does, packed into rows."""

from array import array
from collections.abc import Iterable, Sequence


def shuffled(lengths: Sequence[int], seed: int) -> list[int]:
    """Reorder lengths as `torch.randperm` does from a seed, which torch's samplers call.

    `randperm_cpu` of `aten/src/ATen/native/TensorFactories.cpp` swaps each entry with a later one, chosen by
    the Mersenne Twister's next 32 bits, whose state `aten/src/ATen/core/MT19937RNGEngine.h` fills from the
    low 32 bits of the seed.
    """
    found = list(lengths)
    left = len(found)
    if left < 2:
        return found
    for index, bits in enumerate(_random_bits(seed, left - 1)):
        other = index + bits % left
        left -= 1
        found[index], found[other] = found[other], found[index]
    return found


_STATE = 624


def _random_bits(seed: int, count: int) -> "array[int]":
    """Return `count` numbers of 32 bits from the Mersenne Twister that `torch.manual_seed` starts."""
    import random  # what loads slowly is loaded where it is needed

    state = [seed & 0xFFFFFFFF]
    for index in range(1, _STATE):
        before = state[-1]
        state.append((1812433253 * (before ^ before >> 30) + index) & 0xFFFFFFFF)
    twister = random.Random()  # noqa: S311 - torch's own numbers, not secrets
    twister.setstate((3, (*state, _STATE), None))  # Python's own seeding fills the state otherwise
    words = array("I")
    words.frombytes(twister.getrandbits(32 * count).to_bytes(4 * count, "little"))
    if _IS_BIG_ENDIAN:
        words.byteswap()
    return words


_IS_BIG_ENDIAN = array("I", [1]).tobytes()[0] == 0
_MOST_BATCHES = 50
"""Most batches that transformers sorts together."""


def grouped(shuffled_lengths: Sequence[int], batch_size: int) -> list[int]:
    """Reorder shuffled lengths as transformers' `LengthGroupedSampler` does.

    `get_length_grouped_indices` of `transformers/trainer_pt_utils.py` shuffles, sorts mega-batches by length,
    the longest first, and swaps the longest row of all to the front, so that what does not fit fails at once.

    Args:
        shuffled_lengths: one for each sample, as `shuffled` returns them.
        batch_size: rows of a batch, over all devices, times the batches of gradient accumulation.

    """
    found = list(shuffled_lengths)
    size = batch_size * max(1, min(len(found) // (4 * batch_size), _MOST_BATCHES))
    starts = range(0, len(found), size)
    for start in starts:
        found[start : start + size] = sorted(found[start : start + size], reverse=True)
    if found:
        longest = max(starts, key=found.__getitem__)
        found[0], found[longest] = found[longest], found[0]
    return found


def packed(lengths: Iterable[int], room: int) -> list[int]:
    """Pack samples into rows: each row takes the next samples of the order while they fit into `room` tokens.

    Raises:
        ValueError: if a sample is longer than that.

    """
    rows: list[int] = []
    held = room + 1  # the first sample begins a row
    for length in lengths:
        if length > room:
            raise ValueError(f"expected at most {room} tokens, got {length}")
        held += length
        if held > room:
            held = length
            rows.append(length)
        else:
            rows[-1] = held
    return rows
