"""Tokens of a split: what each device of a batch gets when rows are sequences of different lengths.

A batch takes as long as the device with the most tokens, so rows say little. Each batch is shared as its rows
are, the tokens of each device are added up, and so is what a token counts in the mean of the devices' means.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from typing import Literal, NamedTuple

PadTo = Literal["chunk", "batch"] | int
"""Length of a padded row: the longest of its chunk or of its batch, or a number of tokens."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """`count` batches in a row whose rows are shared alike.

    `rows` and `devices` have an entry for each replica: its rows, and the number of its device. A replica
    gets consecutive rows, as from `torch.chunk`, or with `in_turn` every n-th row of n replicas, as from
    DistributedSampler.
    """

    count: int
    rows: tuple[int, ...]
    devices: tuple[int, ...]
    in_turn: bool = False

    def count_chunks(self, drawn: Sequence[int], count: Callable[[Sequence[int]], int]) -> list[list[int]]:
        """Count each chunk of what these batches draw: a list for each replica, an entry for each batch."""
        num_replicas, size = len(self.rows), sum(self.rows)
        counted, start = [], 0
        for replica, rows in enumerate(self.rows):
            if self.in_turn:
                held, starts = drawn[replica::num_replicas], range(0, self.count * rows, rows)
            else:
                held, starts = drawn, range(start, start + self.count * size, size)
            counted.append([count(held[first : first + rows]) for first in starts])
            start += rows
        return counted


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
    number = 0
    for sharing, drawn in _drawn(order, sharings):
        tokens = sharing.count_chunks(drawn, sum)
        padded = _padded(sharing, drawn, pad_to)
        cost = sharing.count_chunks(_squares(drawn), sum) if is_quadratic else tokens
        for counted in zip(
            zip(*tokens, strict=True), zip(*padded, strict=True), zip(*cost, strict=True), strict=True
        ):
            number += 1
            yield Batch(number, sharing, *map(list, counted))


def _drawn(order: Sequence[int], sharings: Iterable[Sharing]) -> Iterator[tuple[Sharing, Sequence[int]]]:
    start = 0
    for sharing in sharings:
        end = start + sharing.count * sum(sharing.rows)
        yield sharing, order[start:end]
        start = end


def _padded(sharing: Sharing, drawn: Sequence[int], pad_to: PadTo) -> list[list[int]]:
    size = sum(sharing.rows)
    match pad_to:
        case "chunk":
            longest = sharing.count_chunks(drawn, max)
        case "batch":
            whole = [max(drawn[start : start + size]) for start in range(0, len(drawn), size)]
            longest = [whole] * len(sharing.rows)
        case length:
            longest = [[length] * sharing.count] * len(sharing.rows)
    return [[rows * most for most in each] for rows, each in zip(sharing.rows, longest, strict=True)]


def _squares(drawn: Sequence[int]) -> list[int]:
    return [length * length for length in drawn]


class Weight(NamedTuple):
    """Weight of one token of a replica, divided by its weight in a mean over all tokens of the step.

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
    """One device's share of the epoch."""

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


def balance_of(
    order: Sequence[int], sharings: Iterable[Sharing], num_devices: int, *, is_quadratic: bool = False
) -> float:
    """Return the balance of an epoch: cost over what the devices could do while the fullest one is busy."""
    used = slots = 0
    for sharing, drawn in _drawn(order, sharings):
        cost = sharing.count_chunks(_squares(drawn) if is_quadratic else drawn, sum)
        used += sum(map(sum, cost))
        slots += num_devices * sum(map(max, zip(*cost, strict=True)))
    return used / slots if slots else 1.0


class Tally:
    """Sums up batches one by one.

    Args:
        num_devices: all devices, idle ones included.
        accumulate: how many batches make an optimizer step.

    """

    def __init__(self, num_devices: int, accumulate: int = 1) -> None:
        self._num_devices = num_devices
        self._totals, self._weights = _Totals(), _Weights(accumulate)
        self._used = self._slots = self._padded_slots = 0
        self._worst: Batch | None = None
        self._least = 2.0

    def add(self, batch: Batch) -> None:
        """Add the next batch."""
        whole, slots = sum(batch.cost), self._num_devices * max(batch.cost)
        self._used += whole
        self._slots += slots
        self._padded_slots += self._num_devices * max(batch.padded)
        balance = whole / slots if slots else 1.0
        if balance < self._least:
            self._worst, self._least = batch, balance
        self._totals.add(batch)
        self._weights.add(batch)

    def summary(self) -> Summary:
        """Sum up the batches so far; a step that is not complete counts as one."""
        devices = self._totals.devices()
        padded = sum(total.padded for total in devices.values())
        lightest, heaviest = self._weights.extremes()
        return Summary(
            balance=self._used / self._slots if self._slots else 1.0,
            padded_balance=padded / self._padded_slots if self._padded_slots else 1.0,
            devices=devices,
            worst=self._worst,
            lightest=lightest,
            heaviest=heaviest,
            without_tokens=self._weights.without_tokens,
        )


def summarize(batches: Iterable[Batch], num_devices: int, accumulate: int = 1) -> Summary:
    """Sum up the batches of an epoch, as `Tally` does."""
    tally = Tally(num_devices, accumulate)
    for batch in batches:
        tally.add(batch)
    return tally.summary()


@dataclass(slots=True)
class _Sums:
    """Sums over the batches of one kind, an entry for each replica."""

    count: int
    tokens: list[int]
    padded: list[int]
    cost: list[int]


class _Totals:
    """Adds up tokens of the replicas of each kind of batch."""

    def __init__(self) -> None:
        self._kinds: dict[Sharing, _Sums] = {}
        self._last: tuple[Sharing, _Sums] | None = None

    def add(self, batch: Batch) -> None:
        if self._last is None or self._last[0] is not batch.sharing:
            zeros = [0] * len(batch.tokens)
            new = _Sums(0, zeros, zeros.copy(), zeros.copy())
            self._last = batch.sharing, self._kinds.setdefault(batch.sharing, new)
        sums = self._last[1]
        sums.count += 1
        sums.tokens[:] = map(add, sums.tokens, batch.tokens)
        sums.padded[:] = map(add, sums.padded, batch.padded)
        sums.cost[:] = map(add, sums.cost, batch.cost)

    def devices(self) -> dict[int, DeviceTotal]:
        found: dict[int, DeviceTotal] = {}
        for sharing, sums in self._kinds.items():
            held = (sharing.devices, sharing.rows, sums.tokens, sums.padded, sums.cost)
            for device, rows, tokens, padded, cost in zip(*held, strict=True):
                old = found.get(device, DeviceTotal())
                found[device] = DeviceTotal(
                    old.rows + sums.count * rows, old.tokens + tokens, old.padded + padded, old.cost + cost
                )
        return dict(sorted(found.items()))


class _Weights:
    """Finds the extremes of a token's weight, where the loss is a mean of means.

    A mean over `t` tokens of one of `k` replicas, in one of `n` batches of a step, gives each of them
    1 / (n · k · t); a mean over all `T` tokens of the step would give it 1 / T.
    """

    def __init__(self, accumulate: int) -> None:
        self._accumulate = accumulate
        self._begin()
        self._lightest: Weight | None = None
        self._heaviest: Weight | None = None
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
            self._lightest, self._heaviest = self.extremes()
            self._begin()

    def extremes(self) -> tuple[Weight | None, Weight | None]:
        """Return the lightest and the heaviest, the step that is not complete included."""
        lightest, heaviest = self._lightest, self._heaviest
        if self._fewest is not None and self._most is not None:
            light = self._tokens / (self._num_batches * self._most[0])
            heavy = self._tokens / (self._num_batches * self._fewest[0])
            if lightest is None or light < lightest.weight:
                lightest = self._weight(light, *self._most[1:])
            if heaviest is None or heavy > heaviest.weight:
                heaviest = self._weight(heavy, *self._fewest[1:])
        return lightest, heaviest

    def _weight(self, weight: float, batch: Batch, tokens: int) -> Weight:
        return Weight(
            weight=weight,
            batch=batch.number,
            device=batch.sharing.devices[batch.tokens.index(tokens)],
            tokens=tokens,
            of=self._tokens,
            last=self._last,
            num_batches=self._num_batches,
        )
