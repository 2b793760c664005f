"""The tokens of a predicted epoch: what each device gets, the balance, and what a token counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dpdemo.arithmetic.tokens import Batch, PadTo, Sharing, Summary, Weight, each_batch
from dpdemo.wording import counted

Cost = Literal["linear", "quadratic"]
"""What a row takes: its length, or the square of it, as attention does."""
Order = Literal["data", "shuffled", "grouped", "sorted"]
_ORDERS = {
    "data": "in the order of the data set",
    "shuffled": "shuffled by seed {seed}",
    "grouped": "grouped by length, shuffled by seed {seed}",
    "sorted": "sorted, the longest first",
}
_DIGITS = 6
_MOST_LINES = 32
_EVEN = 0.005
"""Weights that differ by less than this from 1 are shown as equal."""


@dataclass(frozen=True, slots=True)
class Line:
    """One device in a batch or in the epoch; `most` is the cost of the device with the most."""

    label: str
    rows: int
    tokens: int
    padded: int
    cost: int
    most: int

    @property
    def share(self) -> float:
        """The cost over that of the device with the most."""
        return self.cost / self.most if self.most else 1.0


@dataclass(frozen=True, slots=True)
class Table:
    """The lines of one batch or of the epoch, under a heading; `num_left_out` more are not listed."""

    heading: str
    lines: tuple[Line, ...]
    num_left_out: int = 0


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of an epoch.

    `order` holds the length of each row in the order in which the epoch draws them, `sharings` how batches
    are shared. `before` is the balance without grouping, sorting and packing, where one of them was asked
    for, and `grouped` the balance that grouping would give, where none was.
    """

    source: str
    arranged: Order
    seed: int
    num_samples: int
    pack: int | None
    pad_to: PadTo
    cost: Cost
    accumulate: int
    devices: tuple[str, ...]
    is_ranks: bool
    order: Sequence[int]
    sharings: tuple[Sharing, ...]
    summary: Summary
    before: float | None = None
    grouped: float | None = None

    def each_batch(self) -> Iterator[Batch]:
        """Yield the tokens of each batch."""
        return each_batch(self.order, self.sharings, self.pad_to, is_quadratic=self.cost == "quadratic")

    def to_dict(self, *, verbose: bool = False) -> dict[str, Any]:
        """Return the JSON form; with `verbose` it lists every batch, made while it is read."""
        summary, worst = self.summary, self.summary.worst
        found = {
            "source": self.source,
            "order": self.arranged,
            "samples": self.num_samples,
            "rows": sum(total.rows for total in summary.devices.values()),
            "pack": self.pack,
            "pad_to": self.pad_to,
            "cost": self.cost,
            "accumulate": self.accumulate,
            "tokens": summary.tokens,
            "padded_tokens": summary.padded,
            "balance": round(summary.balance, _DIGITS),
            "padded_balance": round(summary.padded_balance, _DIGITS),
            "balance_before": None if self.before is None else round(self.before, _DIGITS),
            "balance_grouped": None if self.grouped is None else round(self.grouped, _DIGITS),
            "devices": [self._plain(device, line) for device, line in self._epoch_lines()],
            "worst": None if worst is None else self._plain_batch(worst),
            "lightest": self._plain_weight(summary.lightest),
            "heaviest": self._plain_weight(summary.heaviest),
        }
        if verbose:
            found["batches"] = map(self._plain_batch, self.each_batch())
        return found

    def _plain(self, device: int, line: Line) -> dict[str, Any]:
        place = {"rank": device} if self.is_ranks else {}
        return {
            **place,
            "device": self.devices[device],
            "rows": line.rows,
            "tokens": line.tokens,
            "padded_tokens": line.padded,
            "share": round(line.share, _DIGITS),
        }

    def _plain_batch(self, batch: Batch) -> dict[str, Any]:
        return {
            "batch": batch.number,
            "balance": round(batch.balance(len(self.devices)), _DIGITS),
            "devices": [self._plain(device, line) for device, line in self._batch_lines(batch)],
        }

    def _plain_weight(self, weight: Weight | None) -> dict[str, Any] | None:
        if weight is None:
            return None
        return {
            "weight": round(weight.weight, _DIGITS),
            "batch": weight.batch,
            "device": self.devices[weight.device],
            "tokens": weight.tokens,
            "divisor": weight.of,
        }

    def cells(self, batch: Batch, num_idle: int) -> list[tuple[int, int, float | None]]:
        """List the CSV's last columns for the rows of a batch: its replicas, idle devices, and Outside."""
        most = max(batch.cost)
        replicas = zip(batch.tokens, batch.padded, batch.cost, strict=True)
        return [
            *(
                (tokens, padded, round(cost / most, _DIGITS) if most else 1.0)
                for tokens, padded, cost in replicas
            ),
            *([(0, 0, 0.0)] * num_idle),
            (sum(batch.tokens), sum(batch.padded), None),
        ]

    # Words

    def setting(self) -> str:
        """Describe the lengths: where they come from, their order, and what is padded or packed."""
        order = _ORDERS[self.arranged].format(seed=self.seed)
        parts = [f"lengths {f'of {self.source} ' if self.source else ''}{order}"]
        if self.pack is not None:
            rows = sum(sharing.count * sum(sharing.rows) for sharing in self.sharings)
            parts.append(
                f"{counted(self.num_samples, 'sample')} packed into {_number(rows)} rows of up to "
                f"{counted_tokens(self.pack)}"
            )
        parts.append(f"each row padded to {self._padding()}")
        return ", ".join(parts)

    def _padding(self) -> str:
        match self.pad_to:
            case "chunk":
                return "the longest of its rank's batch" if self.is_ranks else "the longest of its chunk"
            case "batch":
                return "the longest of all ranks' batches" if self.is_ranks else "the longest of its batch"
            case length:
                return counted_tokens(length)

    def tables(self, *, verbose: bool) -> Iterator[Table]:
        """Yield the worst batch and the epoch; with `verbose`, every batch before them."""
        worst = self.summary.worst
        if verbose:
            for batch in self.each_batch():
                yield self._table(f"Batch {batch.number}: {self._held(batch)}", self._batch_lines(batch))
        if worst is not None:
            number = sum(sharing.count for sharing in self.sharings)
            which = (
                "The one batch"
                if number == 1
                else f"Worst of {_number(number)} batches: batch {worst.number}"
            )
            yield self._table(f"{which}, {self._held(worst)}", self._batch_lines(worst))
        if self.summary.devices:
            yield self._table(f"The whole epoch: {self._drawn()}", self._epoch_lines())

    def _held(self, batch: Batch) -> str:
        balance = percent(batch.balance(len(self.devices)))
        rows = counted(sum(batch.sharing.rows), "row")
        return f"{rows}, {counted_tokens(sum(batch.tokens))}, balance {balance}"

    def _drawn(self) -> str:
        return f"{_number(sum(total.rows for total in self.summary.devices.values()))} rows"

    @staticmethod
    def _table(heading: str, lines: Iterator[tuple[int, Line]]) -> Table:
        found = [line for _, line in lines]
        return Table(heading, tuple(found[:_MOST_LINES]), max(0, len(found) - _MOST_LINES))

    def _batch_lines(self, batch: Batch) -> Iterator[tuple[int, Line]]:
        most = max(batch.cost)
        replicas = zip(
            batch.sharing.devices, batch.sharing.rows, batch.tokens, batch.padded, batch.cost, strict=True
        )
        held = {device: found for device, *found in replicas}
        for device in range(len(self.devices)):
            rows, tokens, padded, cost = held.get(device, (0, 0, 0, 0))
            yield device, Line(self.label(device), rows, tokens, padded, cost, most)

    def _epoch_lines(self) -> Iterator[tuple[int, Line]]:
        totals = self.summary.devices
        most = max((total.cost for total in totals.values()), default=0)
        for device in range(len(self.devices)):
            total = totals.get(device)
            held = (0, 0, 0, 0) if total is None else (total.rows, total.tokens, total.padded, total.cost)
            yield device, Line(self.label(device), *held, most)

    def label(self, device: int) -> str:
        """Name a device, or a rank and its device."""
        name = self.devices[device]
        if self.is_ranks:
            return f"rank {device}: {name}"
        return f"{name} (replica {device})" if len(set(self.devices)) < len(self.devices) else name

    def facts(self) -> list[tuple[str, str, str]]:
        """Sum up the epoch: name, number and meaning."""
        summary = self.summary
        padding = summary.padded - summary.tokens
        share = f" ({percent(padding / summary.padded)} of what is computed)" if padding else ""
        found = [("Tokens", _number(summary.tokens), f"and {_number(padding)} of padding{share}")]
        if len(self.devices) > 1 and summary.worst is not None:
            found.append(("Balance", percent(summary.balance), f": {self._balance()}"))
        if self.before is not None:
            found.append(
                (self._arrangement(), "", f"takes the balance {_from_to(self.before, summary.balance)}")
            )
        if summary.heaviest is not None and (len(self.devices) > 1 or self.accumulate > 1):
            found += self._weighing(summary.heaviest)
        return found

    def _unit(self) -> str:
        return "tokens²" if self.cost == "quadratic" else "tokens"

    def _one(self) -> str:
        return "rank" if self.is_ranks else "GPU"

    def _balance(self) -> str:
        padded = percent(self.summary.padded_balance)
        return f"share of {self._one()} time in use, by {self._unit()}; {padded} by padded tokens"

    def _worst(self, batch: Batch) -> str:
        lines = [line for _, line in self._batch_lines(batch)]
        most, least = max(lines, key=lambda line: line.cost), min(lines, key=lambda line: line.cost)
        return (
            f"balance {percent(batch.balance(len(self.devices)))}, {counted_tokens(most.tokens)} on "
            f"{most.label}, {_number(least.tokens)} on {least.label}"
        )

    def _arrangement(self) -> str:
        names = {"grouped": "Grouping", "sorted": "Sorting"}
        parts = [names[self.arranged]] if self.arranged in names else []
        parts += ["packing" if parts else "Packing"] if self.pack is not None else []
        return " and ".join(parts)

    def _weighing(self, heaviest: Weight) -> list[tuple[str, str, str]]:
        lightest = self.summary.lightest or heaviest
        if heaviest.weight - lightest.weight < _EVEN:
            return [("Token weight", "", "every token counts the same, or nearly so")]
        means = f"if each {self._one()} averages its own loss" + (
            " in each batch" if self.accumulate > 1 else ""
        )
        extremes = f"{lightest.weight:.2f} to {heaviest.weight:.2f}"
        where = f"least on {self._where(lightest)}, most on {self._where(heaviest)}"
        return [
            ("Token weight", extremes, f"times its fair share {means}: {where}"),
            ("Right divisor", "", self._divisor(heaviest)),
        ]

    def _where(self, weight: Weight) -> str:
        return f"{self.label(weight.device)} in batch {weight.batch}"

    def _divisor(self, weight: Weight) -> str:
        first = weight.last - weight.num_batches + 1
        batches = f"batch {weight.last}" if weight.num_batches == 1 else f"batches {first}–{weight.last}"
        all_of = "all ranks" if self.is_ranks else "all GPUs"
        of = all_of if self.accumulate == 1 else f"{all_of} in the {self.accumulate} batches of a step"
        advice = f"add up the loss and divide it by the tokens of {of}: {_number(weight.of)} in {batches}"
        return (
            f"{advice}; then times {len(self.devices)}, since DDP averages gradients"
            if self.is_ranks
            else advice
        )

    def short(self) -> str:
        """Say the balance and the worst batch in one line."""
        worst = self.summary.worst
        where = "" if worst is None else f"; the worst is batch {worst.number}: {self._worst(worst)}"
        return f"the balance by {self._unit()} is {percent(self.summary.balance)}{where}"

    def warnings(self) -> list[str]:
        """Warn of a mean over no token."""
        number = self.summary.without_tokens
        if number is None:
            return []
        return [f"batch {number}: a {self._one()} has rows and no token; a mean over none is NaN"]

    def tip(self) -> str:
        """Advise grouping where it helps."""
        if self.grouped is None or self.grouped - self.summary.balance < _EVEN:
            return ""
        return f"--group-by-length takes the balance {_from_to(self.summary.balance, self.grouped)}"


def _from_to(before: float, after: float) -> str:
    return f"from {percent(before)} to {percent(after)}"


def percent(share: float) -> str:
    """Write a share as `61 %`, `99.6 %` or `100 %`: only what is whole is 100 %."""
    if share >= 1:
        return "100 %"
    digits = f"{100 * share:.3g}"
    return "99.9 %" if digits == "100" else f"{digits} %"


def _number(number: int) -> str:
    return f"{number:,}"


def counted_tokens(number: int) -> str:
    """Write `1 token` or `4,096 tokens`."""
    return f"{number:,} token{'s' * (number != 1)}"
