"""Tokens of a split: what each device of a batch gets when rows are sequences of different lengths.

A batch takes as long as the device with the most tokens, so rows say little. Each batch is shared as its rows
are, the tokens of each device are added up, and so is what a token counts in the mean of the devices' means.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
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

    def chunks(self, batch: Sequence[int]) -> list[Sequence[int]]:
        """Share out the rows of one batch: a chunk for each replica."""
        if self.in_turn:
            return [batch[replica :: len(self.rows)] for replica in range(len(self.rows))]
        return [batch[end - rows : end] for rows, end in zip(self.rows, accumulate(self.rows), strict=True)]


class Batch(NamedTuple):
    """The tokens of one batch (1-based), an entry for each replica; `cost` is what makes it take time."""

    number: int
    sharing: Sharing
    tokens: list[int]
    padded: list[int]
    cost: list[int]

    def balance(self, num_devices: int) -> float:
        """Return the cost of all devices over what they could do while the one with the most is busy."""
        return _share(sum(self.cost), num_devices * max(self.cost))


def _share(used: int, slots: int) -> float:
    return used / slots if slots else 1.0


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
    start = 0
    for number, sharing in enumerate(chain.from_iterable(repeat(each, each.count) for each in sharings), 1):
        batch = order[start : start + sum(sharing.rows)]
        start += len(batch)
        chunks = sharing.chunks(batch)
        tokens = list(map(sum, chunks))
        padded = [
            rows * most for rows, most in zip(sharing.rows, _longest(batch, chunks, pad_to), strict=True)
        ]
        cost = [sum(length * length for length in chunk) for chunk in chunks] if is_quadratic else tokens
        yield Batch(number, sharing, tokens, padded, cost)


def _longest(batch: Sequence[int], chunks: list[Sequence[int]], pad_to: PadTo) -> list[int]:
    """Return the length of a padded row of each chunk."""
    if pad_to == "chunk":
        return list(map(max, chunks))
    return [max(batch) if pad_to == "batch" else pad_to] * len(chunks)


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


class Tally:
    """Sums up batches one by one.

    Args:
        num_devices: all devices, idle ones included.
        accumulate: how many batches make an optimizer step.

    """

    def __init__(self, num_devices: int, accumulate: int = 1) -> None:
        self._num_devices = num_devices
        self._weights = _Weights(accumulate)
        self._devices: dict[int, tuple[int, ...]] = {}
        self._slots = self._padded_slots = 0
        self._worst: Batch | None = None
        self._least = 2.0

    def add(self, batch: Batch) -> None:
        """Add the next batch."""
        sharing, balance = batch.sharing, batch.balance(self._num_devices)
        self._slots += self._num_devices * max(batch.cost)
        self._padded_slots += self._num_devices * max(batch.padded)
        if balance < self._least:
            self._worst, self._least = batch, balance
        held = zip(sharing.rows, batch.tokens, batch.padded, batch.cost, strict=True)
        for device, numbers in zip(sharing.devices, held, strict=True):
            self._devices[device] = tuple(map(add, self._devices.get(device, (0, 0, 0, 0)), numbers))
        self._weights.add(batch)

    def summary(self) -> Summary:
        """Sum up the batches so far; a step that is not complete counts as one."""
        devices = {device: DeviceTotal(*sums) for device, sums in sorted(self._devices.items())}
        lightest, heaviest = self._weights.extremes()
        return Summary(
            balance=_share(sum(total.cost for total in devices.values()), self._slots),
            padded_balance=_share(sum(total.padded for total in devices.values()), self._padded_slots),
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
        # (k · t, t, batch): where a token counts most, and least
        self._fewest: tuple[int, int, Batch] | None = None
        self._most: tuple[int, int, Batch] | None = None

    def add(self, batch: Batch) -> None:
        counts, num_replicas = [tokens for tokens in batch.tokens if tokens], len(batch.tokens)
        self._num_batches += 1
        self._last = batch.number
        self._tokens += sum(counts)
        if len(counts) < num_replicas:
            self.without_tokens = self.without_tokens or batch.number
        if counts:
            fewest, most = min(counts), max(counts)
            if self._fewest is None or fewest * num_replicas < self._fewest[0]:
                self._fewest = fewest * num_replicas, fewest, batch
            if self._most is None or most * num_replicas > self._most[0]:
                self._most = most * num_replicas, most, batch
        if self._num_batches == self._accumulate:
            self._lightest, self._heaviest = self.extremes()
            self._begin()

    def extremes(self) -> tuple[Weight | None, Weight | None]:
        """Return the lightest and the heaviest, the step that is not complete included."""
        lightest, heaviest = self._lightest, self._heaviest
        if self._fewest is not None and self._most is not None:
            light, heavy = self._weight(*self._most), self._weight(*self._fewest)
            lightest = light if lightest is None or light.weight < lightest.weight else lightest
            heaviest = heavy if heaviest is None or heavy.weight > heaviest.weight else heaviest
        return lightest, heaviest

    def _weight(self, times_replicas: int, tokens: int, batch: Batch) -> Weight:
        return Weight(
            weight=self._tokens / (self._num_batches * times_replicas),
            batch=batch.number,
            device=batch.sharing.devices[batch.tokens.index(tokens)],
            tokens=tokens,
            of=self._tokens,
            last=self._last,
            num_batches=self._num_batches,
        )
