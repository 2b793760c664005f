"""The tokens of each device, summed up: the predicted ones of an epoch, the observed ones of calls."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

from dpdemo.arithmetic.tokens import Batch, Summary, Weight
from dpdemo.results.report import rounded
from dpdemo.results.table import Fact
from dpdemo.wording import counted, percent

Cost = Literal["linear", "quadratic"]
"""The cost of a row: its length, or the square of it, as attention does."""
EVEN = 0.005
"""Weights that differ by less than this from 1 are shown as equal."""


class Line(NamedTuple):
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


Lines = list[Line]
"""A line for each device, in order."""


@dataclass(frozen=True, kw_only=True)
class DeviceTokens:
    """The tokens of each device, summed up; what simulate predicts and what exec sees have this in common."""

    devices: tuple[str, ...]
    summary: Summary
    is_ranks: bool = False
    cost: Cost = "linear"
    accumulate: int = 1
    noun: ClassVar[str] = "batch"

    def sums(self) -> dict[str, Any]:
        """Return what the JSON forms have in common."""
        summary, worst = self.summary, self.summary.worst
        return {
            "tokens": summary.tokens,
            "padded_tokens": summary.padded,
            "balance": rounded(summary.balance),
            "padded_balance": rounded(summary.padded_balance),
            "devices": self._plain(self.all_lines()),
            "worst": None if worst is None else self.plain_batch(worst),
            "lightest": self._plain_weight(summary.lightest),
            "heaviest": self._plain_weight(summary.heaviest),
        }

    def _plain(self, lines: Lines) -> list[dict[str, Any]]:
        return [
            {
                **({"rank": device} if self.is_ranks else {}),
                "device": self.devices[device],
                "rows": line.rows,
                "tokens": line.tokens,
                "padded_tokens": line.padded,
                "share": rounded(line.share),
            }
            for device, line in enumerate(lines)
        ]

    def plain_batch(self, batch: Batch) -> dict[str, Any]:
        """Return the JSON form of one batch."""
        return {
            self.noun: batch.number,
            "balance": rounded(batch.balance(len(self.devices))),
            "devices": self._plain(self.batch_lines(batch)),
        }

    def _plain_weight(self, weight: Weight | None) -> dict[str, Any] | None:
        if weight is None:
            return None
        return {
            "weight": rounded(weight.weight),
            self.noun: weight.batch,
            "device": self.devices[weight.device],
            "tokens": weight.tokens,
            "divisor": weight.of,
        }

    def held(self, batch: Batch) -> str:
        """Describe one batch: its rows, its tokens, its balance."""
        balance = percent(batch.balance(len(self.devices)))
        rows = counted(sum(batch.sharing.rows), "row")
        return f"{rows}, {counted_tokens(sum(batch.tokens))}, balance {balance}"

    def batch_lines(self, batch: Batch) -> Lines:
        """Return a line for each device in one batch."""
        columns = zip(batch.sharing.rows, batch.tokens, batch.padded, batch.cost, strict=True)
        return self._lines(dict(zip(batch.sharing.devices, columns, strict=True)))

    def all_lines(self) -> Lines:
        """Return a line for each device in all batches."""
        totals = self.summary.devices.items()
        return self._lines({at: (sums.rows, sums.tokens, sums.padded, sums.cost) for at, sums in totals})

    def _lines(self, held: dict[int, tuple[int, int, int, int]]) -> Lines:
        """Return a line for each device; `held` has the rows, tokens, padded tokens and cost of some."""
        most = max((cost for *_, cost in held.values()), default=0)
        return [
            Line(self.label(device), *held.get(device, (0, 0, 0, 0)), most)
            for device in range(len(self.devices))
        ]

    def label(self, device: int) -> str:
        """Name a device, or a rank and its device."""
        name = self.devices[device]
        if self.is_ranks:
            return f"rank {device}: {name}"
        return f"{name} (replica {device})" if self._is_shared else name

    @cached_property
    def _is_shared(self) -> bool:
        return len(set(self.devices)) < len(self.devices)

    def facts(self) -> list[Fact]:
        """Sum up: name, number and meaning."""
        summary = self.summary
        padding = summary.padded - summary.tokens
        share = f" ({percent(padding / summary.padded)} of what is computed)" if padding else ""
        found = [("Tokens", f"{summary.tokens:,}", f"and {padding:,} of padding{share}")]
        if len(self.devices) > 1 and summary.worst is not None:
            padded = percent(summary.padded_balance)
            balance = f": share of {self._holder()} time in use, by {self._unit()}; {padded} by padded tokens"
            found.append(("Balance", percent(summary.balance), balance))
        if summary.heaviest is not None and (len(self.devices) > 1 or self.accumulate > 1):
            found += self._weighing(summary.heaviest)
        return found

    def _unit(self) -> str:
        return "tokens²" if self.cost == "quadratic" else "tokens"

    def _holder(self) -> str:
        return "rank" if self.is_ranks else "GPU"

    def worst_of(self, batch: Batch) -> str:
        """Describe how far apart the devices of a batch are."""
        lines = self.batch_lines(batch)
        most, least = max(lines, key=lambda line: line.cost), min(lines, key=lambda line: line.cost)
        return (
            f"balance {percent(batch.balance(len(self.devices)))}, {counted_tokens(most.tokens)} on "
            f"{most.label}, {least.tokens:,} on {least.label}"
        )

    def _weighing(self, heaviest: Weight) -> list[Fact]:
        lightest = self.summary.lightest or heaviest
        if heaviest.weight - lightest.weight < EVEN:
            return [("Token weight", "", "every token counts the same, or nearly so")]
        each = " in each batch" if self.accumulate > 1 else ""
        extremes = f"{lightest.weight:.2f} to {heaviest.weight:.2f}"
        where = f"least on {self._where(lightest)}, most on {self._where(heaviest)}"
        means = f"times its fair share if each {self._holder()} averages its own loss{each}: {where}"
        return [("Token weight", extremes, means), ("Right divisor", "", self._divisor(heaviest))]

    def _where(self, weight: Weight) -> str:
        return f"{self.label(weight.device)} in {self.noun} {weight.batch}"

    def _divisor(self, weight: Weight) -> str:
        first = weight.last - weight.num_batches + 1
        batches = f"{self.noun} {weight.last}" if first == weight.last else f"batches {first}–{weight.last}"
        step = "" if self.accumulate == 1 else f" in the {self.accumulate} batches of a step"
        times = f"; then times {len(self.devices)}, since DDP averages gradients" if self.is_ranks else ""
        tokens = f"the tokens of all {self._holder()}s{step}: {weight.of:,} in {batches}"
        return f"add up the loss and divide it by {tokens}{times}"

    def short(self) -> str:
        """Write the balance and the worst batch in one line."""
        worst = self.summary.worst
        where = "" if worst is None else f"; the worst is {self.noun} {worst.number}: {self.worst_of(worst)}"
        return f"the balance by {self._unit()} is {percent(self.summary.balance)}{where}"

    def warnings(self) -> list[str]:
        """Warn of a mean over no token."""
        number = self.summary.without_tokens
        if number is None:
            return []
        return [f"{self.noun} {number}: a {self._holder()} has rows and no token; a mean over none is NaN"]


def counted_tokens(number: int) -> str:
    """Write `1 token` or `4,096 tokens`."""
    return f"{number:,} token{'s' * (number != 1)}"
