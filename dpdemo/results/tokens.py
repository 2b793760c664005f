"""The tokens of a predicted epoch, and those that the calls of a program had."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dpdemo.arithmetic.tokens import Batch, PadTo, Sharing, each_batch
from dpdemo.results.bars import IDLE, SHORT, bar
from dpdemo.results.devicetokens import EVEN, DeviceTokens, Lines, counted_tokens
from dpdemo.results.report import rounded
from dpdemo.results.table import Block, Canvas, Fact, Table, facts, right, styled
from dpdemo.wording import counted, percent

_MOST_LINES = 32
_PADDED = {"chunk": ("its chunk", "its rank's batch"), "batch": ("its batch", "all ranks' batches")}
"""The rows to whose longest a row is padded: under DataParallel, and under DDP."""
Order = Literal["data", "shuffled", "grouped", "sorted"]
_ORDERS = {
    "data": "in the order of the data set",
    "shuffled": "shuffled by seed {seed}",
    "grouped": "grouped by length, shuffled by seed {seed}",
    "sorted": "sorted, the longest first",
}


@dataclass(frozen=True, kw_only=True)
class Tokens(DeviceTokens):
    """The tokens of a predicted epoch.

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
    order: Sequence[int]
    sharings: tuple[Sharing, ...]
    before: float | None = None
    grouped: float | None = None

    def each_batch(self) -> Iterator[Batch]:
        """Yield the tokens of each batch."""
        return each_batch(self.order, self.sharings, self.pad_to, is_quadratic=self.cost == "quadratic")

    def to_dict(self, *, verbose: bool = False) -> dict[str, Any]:
        """Return the JSON form; with `verbose` it lists every batch, made while it is read."""
        found = {
            "source": self.source,
            "order": self.arranged,
            "samples": self.num_samples,
            "rows": sum(total.rows for total in self.summary.devices.values()),
            "pack": self.pack,
            "pad_to": self.pad_to,
            "cost": self.cost,
            "accumulate": self.accumulate,
            "balance_before": None if self.before is None else rounded(self.before),
            "balance_grouped": None if self.grouped is None else rounded(self.grouped),
            **self.sums(),
        }
        if verbose:
            found["batches"] = map(self.plain_batch, self.each_batch())
        return found

    def cells(self, batch: Batch, num_idle: int) -> list[tuple[int, int, float | None]]:
        """List the CSV's last columns for the rows of a batch: its replicas, idle devices, and Outside."""
        most = max(batch.cost)
        replicas = zip(batch.tokens, batch.padded, batch.cost, strict=True)
        return [
            *((tokens, padded, rounded(cost / most) if most else 1.0) for tokens, padded, cost in replicas),
            *([(0, 0, 0.0)] * num_idle),
            (sum(batch.tokens), sum(batch.padded), None),
        ]

    def setting(self) -> str:
        """Describe the lengths: where they come from, their order, and what is padded or packed."""
        order = _ORDERS[self.arranged].format(seed=self.seed)
        parts = [f"lengths {f'of {self.source} ' if self.source else ''}{order}"]
        if self.pack is not None:
            rows = sum(sharing.count * sum(sharing.rows) for sharing in self.sharings)
            parts.append(
                f"{counted(self.num_samples, 'sample')} packed into {rows:,} rows of up to "
                f"{counted_tokens(self.pack)}"
            )
        if isinstance(self.pad_to, int):
            padding = counted_tokens(self.pad_to)
        else:
            padding = f"the longest of {_PADDED[self.pad_to][self.is_ranks]}"
        return ", ".join([*parts, f"each row padded to {padding}"])

    def tables(self, *, verbose: bool) -> Iterator[tuple[str, Lines]]:
        """Yield the worst batch and the epoch; with `verbose`, every batch before them."""
        worst = self.summary.worst
        if verbose:
            for batch in self.each_batch():
                yield f"Batch {batch.number}: {self.held(batch)}", self.batch_lines(batch)
        if worst is not None:
            number = sum(sharing.count for sharing in self.sharings)
            which = "The one batch" if number == 1 else f"Worst of {number:,} batches: batch {worst.number}"
            yield f"{which}, {self.held(worst)}", self.batch_lines(worst)
        if self.summary.devices:
            rows = sum(total.rows for total in self.summary.devices.values())
            yield f"The whole epoch: {rows:,} rows", self.all_lines()

    def facts(self) -> list[Fact]:
        """Sum up: name, number and meaning."""
        found = super().facts()
        if self.before is not None:
            better = f"takes the balance {_from_to(self.before, self.summary.balance)}"
            found.append((self._arrangement(), "", better))
        return found

    def _arrangement(self) -> str:
        names = {"grouped": "Grouping", "sorted": "Sorting"}
        parts = [names[self.arranged]] if self.arranged in names else []
        parts += ["packing" if parts else "Packing"] if self.pack is not None else []
        return " and ".join(parts)

    def tip(self) -> str:
        """Advise grouping where it helps."""
        if self.grouped is None or self.grouped - self.summary.balance < EVEN:
            return ""
        return f"--group-by-length takes the balance {_from_to(self.summary.balance, self.grouped)}"


@dataclass(frozen=True, kw_only=True)
class SeenTokens(DeviceTokens):
    """The tokens in all calls of one DataParallel object; `told_by` says what told tokens from padding."""

    told_by: str
    num_calls: int
    noun: ClassVar[str] = "call"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"told_by": self.told_by, "calls": self.num_calls, **self.sums()}

    @property
    def heading(self) -> str:
        """The head of the table of all calls."""
        return f"Tokens of {counted(self.num_calls, 'call')}, told by {self.told_by}"

    def facts(self) -> list[Fact]:
        """Sum up: name, number and meaning."""
        worst = self.summary.worst
        found = super().facts()
        if worst is not None and len(self.devices) > 1:
            found.insert(2, ("Worst call", str(worst.number), f": {self.worst_of(worst)}"))
        return found


def _from_to(before: float, after: float) -> str:
    return f"from {percent(before)} to {percent(after)}"


def token_tables(tokens: Tokens, canvas: Canvas, *, verbose: bool) -> Iterator[Block]:
    """Yield each table under its heading."""
    for heading, lines in tokens.tables(verbose=verbose):
        yield ()
        yield from _headed(heading, lines, canvas, "bold")


def seen_tokens(tokens: SeenTokens, canvas: Canvas) -> Iterator[Block]:
    """Yield the table of a program's calls, and what it comes to."""
    yield from _headed(tokens.heading, tokens.all_lines(), canvas, "dim")
    yield facts(tokens.facts(), [("Warning", warning) for warning in tokens.warnings()])


def _headed(heading: str, lines: Lines, canvas: Canvas, style: str) -> Iterator[Block]:
    yield styled(heading, style)
    yield _drawn(lines[:_MOST_LINES], canvas)
    if len(lines) > _MOST_LINES:
        yield styled(f"... and {len(lines) - _MOST_LINES:,} more; --format csv lists all")


def _drawn(lines: Lines, canvas: Canvas) -> Table:
    head = ("device", "rows", "tokens", "padded", "share")
    table = Table(("keep", *right(4)), head=head, has_rule=True)
    for line in lines:
        style = IDLE if not line.rows else SHORT if line.cost < line.most else ""
        rows = f"{line.rows:,}" if line.rows else "idle"
        cells = (line.label, rows, f"{line.tokens:,}", f"{line.padded:,}", percent(line.share))
        table.add(*(styled(cell, style) for cell in cells))
    width = table.bar_width(canvas)
    return table.with_bars(5, (bar(line.cost, max(line.most, 1), width) for line in lines), width)
