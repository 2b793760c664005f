"""Tokens of a split: what each device of a batch gets when rows are sequences of different lengths.

A batch takes as long as the device with the most tokens, so rows say little. Here the lengths are put into
the order of an epoch (`shuffled`, `grouped`, `sorted`, `packed`), each batch is shared as its rows are, and
the tokens of each device are added up.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from typing import Literal, NamedTuple

PadTo = Literal["chunk", "batch"] | int
"""How long padding makes a row: as the longest of its chunk or of its batch, or a number of tokens."""


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
"""How many batches transformers sorts together at most."""


def grouped(lengths: Sequence[int], batch_size: int, seed: int) -> list[int]:
    """Reorder lengths as transformers' `LengthGroupedSampler` does.

    `get_length_grouped_indices` of `transformers/trainer_pt_utils.py` shuffles, sorts mega-batches by length,
    the longest first, and swaps the longest row of all to the front, so that what does not fit fails at once.

    Args:
        lengths: one for each sample.
        batch_size: rows of a batch, over all devices, times the batches of gradient accumulation.
        seed: of the shuffle.

    """
    found = shuffled(lengths, seed)
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


@dataclass(frozen=True, slots=True)
class Sharing:
    """`count` batches in a row whose rows are shared alike.

    `rows` and `devices` have an entry for each replica: its rows, and the number of its device. Each replica
    gets rows that are neighbours, as from `torch.chunk`, or with `in_turn` every so manieth row, as from
    DistributedSampler, where all have the same number.
    """

    count: int
    rows: tuple[int, ...]
    devices: tuple[int, ...]
    in_turn: bool = False

    def parts(self) -> list[slice]:
        """List which rows of a batch each replica gets."""
        if self.in_turn:
            return [slice(replica, None, len(self.rows)) for replica in range(len(self.rows))]
        parts, start = [], 0
        for rows in self.rows:
            parts.append(slice(start, start + rows))
            start += rows
        return parts


class Batch(NamedTuple):
    """The tokens of one batch (1-based), an entry for each replica; `cost` is what makes it take time."""

    number: int
    sharing: Sharing
    tokens: list[int]
    padded: list[int]
    cost: list[int]

    def balance(self, num_devices: int) -> float:
        """Return the cost of all devices over what they could do while the one with the most is busy."""
        most = num_devices * max(self.cost)
        return sum(self.cost) / most if most else 1.0


def each_batch(
    order: Sequence[int], sharings: Iterable[Sharing], pad_to: PadTo, *, is_quadratic: bool = False
) -> Iterator[Batch]:
    """Yield the tokens of each batch.

    Args:
        order: lengths in the order in which the epoch draws them, those that it draws twice included.
        sharings: how the batches are shared, in their order.
        pad_to: how long rows are after padding.
        is_quadratic: a row costs the square of its length, as attention does, instead of its length.

    """
    number = start = 0
    for sharing in sharings:
        parts, size = sharing.parts(), sum(sharing.rows)
        for _ in range(sharing.count):
            number += 1
            batch = order[start : start + size]
            start += size
            chunks = [batch[part] for part in parts]
            tokens = list(map(sum, chunks))
            match pad_to:
                case "chunk":
                    padded = [rows * max(chunk) for rows, chunk in zip(sharing.rows, chunks, strict=True)]
                case "batch":
                    longest = max(batch)
                    padded = [rows * longest for rows in sharing.rows]
                case length:
                    padded = [rows * length for rows in sharing.rows]
            cost = [sum(row * row for row in chunk) for chunk in chunks] if is_quadratic else tokens
            yield Batch(number, sharing, tokens, padded, cost)


class Weight(NamedTuple):
    """What a token of one replica counts, over what it would count in a mean over all tokens of the step.

    `tokens` are the replica's in batch `batch`, and `of` all tokens of the step, which ends with batch `last`
    and has `num_batches`.
    """

    weight: float
    batch: int
    device: int
    tokens: int
    of: int
    last: int
    num_batches: int


@dataclass(frozen=True, slots=True)
class DeviceTotal:
    """What one device gets in the epoch."""

    rows: int = 0
    tokens: int = 0
    padded: int = 0
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """An epoch's tokens: `lightest` and `heaviest` are the extremes of a token's weight.

    `padded_balance` is the balance if padding is computed like tokens. `worst` is the batch of the lowest
    balance, and `without_tokens` the first one with a replica that has rows and no token, whose mean is NaN.
    """

    balance: float
    padded_balance: float
    devices: dict[int, DeviceTotal]
    worst: Batch | None
    lightest: Weight | None
    heaviest: Weight | None
    without_tokens: int | None

    @property
    def tokens(self) -> int:
        """Tokens of all devices."""
        return sum(total.tokens for total in self.devices.values())

    @property
    def padded(self) -> int:
        """Tokens of all devices, padding included."""
        return sum(total.padded for total in self.devices.values())


def balance_of(batches: Iterable[Batch], num_devices: int) -> float:
    """Return the balance of an epoch: cost over what the devices could do while the fullest one is busy."""
    used = slots = 0
    for batch in batches:
        used += sum(batch.cost)
        slots += num_devices * max(batch.cost)
    return used / slots if slots else 1.0


def summarize(batches: Iterable[Batch], num_devices: int, accumulate: int = 1) -> Summary:
    """Sum up the batches of an epoch.

    Args:
        batches: in their order.
        num_devices: all devices, idle ones included.
        accumulate: how many batches make an optimizer step.

    """
    totals, weights = _Totals(), _Weights(accumulate)
    used = slots = padded_slots = 0
    worst: Batch | None = None
    least = 2.0
    for batch in batches:
        whole, most = sum(batch.cost), num_devices * max(batch.cost)
        used += whole
        slots += most
        padded_slots += num_devices * max(batch.padded)
        balance = whole / most if most else 1.0
        if balance < least:
            worst, least = batch, balance
        totals.add(batch)
        weights.add(batch)
    weights.end_step()
    devices = totals.devices()
    padded = sum(total.padded for total in devices.values())
    return Summary(
        balance=used / slots if slots else 1.0,
        padded_balance=padded / padded_slots if padded_slots else 1.0,
        devices=devices,
        worst=worst,
        lightest=weights.lightest,
        heaviest=weights.heaviest,
        without_tokens=weights.without_tokens,
    )


class _Totals:
    """Adds up tokens of the replicas of each kind of batch."""

    def __init__(self) -> None:
        self._sharing: Sharing | None = None
        self._sums: list[tuple[Sharing, list[int], list[int], list[int]]] = []

    def add(self, batch: Batch) -> None:
        if batch.sharing is not self._sharing:
            self._sharing = batch.sharing
            zeros = [0] * len(batch.tokens)
            self._sums.append((batch.sharing, zeros, zeros.copy(), zeros.copy()))
        _, tokens, padded, cost = self._sums[-1]
        tokens[:] = map(add, tokens, batch.tokens)
        padded[:] = map(add, padded, batch.padded)
        cost[:] = map(add, cost, batch.cost)

    def devices(self) -> dict[int, DeviceTotal]:
        found: dict[int, DeviceTotal] = {}
        for sharing, *sums in self._sums:
            for device, rows, *held in zip(sharing.devices, sharing.rows, *sums, strict=True):
                old = found.get(device, DeviceTotal())
                new = (sharing.count * rows, *held)
                found[device] = DeviceTotal(*map(add, (old.rows, old.tokens, old.padded, old.cost), new))
        return dict(sorted(found.items()))


class _Weights:
    """Finds the extremes of a token's weight, where the loss is a mean of means.

    A mean over `t` tokens of one of `k` replicas, in one of `n` batches of a step, gives each of them
    1 / (n · k · t); a mean over all `T` tokens of the step would give it 1 / T.
    """

    def __init__(self, accumulate: int) -> None:
        self._accumulate = accumulate
        self._begin()
        self.lightest: Weight | None = None
        self.heaviest: Weight | None = None
        self.without_tokens: int | None = None

    def _begin(self) -> None:
        self._num_batches = self._tokens = self._last = 0
        self._fewest: tuple[int, Batch, int] | None = None
        self._most: tuple[int, Batch, int] | None = None

    def add(self, batch: Batch) -> None:
        tokens = batch.tokens
        self._num_batches += 1
        self._last = batch.number
        self._tokens += sum(tokens)
        fewest, most = min(tokens), max(tokens)
        if not fewest:
            self.without_tokens = self.without_tokens or batch.number
            fewest = min(filter(None, tokens), default=0)
        if fewest and (self._fewest is None or fewest * len(tokens) < self._fewest[0]):
            self._fewest = fewest * len(tokens), batch, fewest
        if most and (self._most is None or most * len(tokens) > self._most[0]):
            self._most = most * len(tokens), batch, most
        if self._num_batches == self._accumulate:
            self.end_step()

    def end_step(self) -> None:
        """Compare the step that ends here with those before it."""
        if self._fewest is not None and self._most is not None:
            heaviest, lightest = self._weight(*self._fewest), self._weight(*self._most)
            if self.heaviest is None or heaviest.weight > self.heaviest.weight:
                self.heaviest = heaviest
            if self.lightest is None or lightest.weight < self.lightest.weight:
                self.lightest = lightest
        self._begin()

    def _weight(self, means: int, batch: Batch, tokens: int) -> Weight:
        return Weight(
            weight=self._tokens / (self._num_batches * means),
            batch=batch.number,
            device=batch.sharing.devices[batch.tokens.index(tokens)],
            tokens=tokens,
            of=self._tokens,
            last=self._last,
            num_batches=self._num_batches,
        )
