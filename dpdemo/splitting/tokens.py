"""The predicted tokens of an epoch: lengths put into order, and counted as the rows are shared."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any, get_args

from dpdemo.arithmetic.lengths import grouped, packed, shuffled
from dpdemo.arithmetic.tokens import PadTo, Sharing, each_batch, summarize
from dpdemo.config.fields import INT64_MAX, Config
from dpdemo.config.load import make_config
from dpdemo.config.ranks import distribute_epoch, rows_per_rank, world_size
from dpdemo.errors import UsageError
from dpdemo.results.devicetokens import Cost
from dpdemo.results.split import SplitReport
from dpdemo.results.tokens import Order, Tokens
from dpdemo.splitting.lengths import Lengths
from dpdemo.wording import show


@dataclass(frozen=True)
class TokenOptions:
    """Options of counting: `pack` is the length of a packed row; `pad_to` None follows the strategy."""

    lengths: Lengths
    group_by_length: bool = False
    sort: bool = False
    pack: int | None = None
    pad_to: PadTo | None = None
    cost: Cost = "linear"
    accumulate: int = 1


@dataclass(frozen=True)
class Rows:
    """The rows of an epoch in order: their lengths, and their config; `given` is that of the samples."""

    given: Config
    config: Config
    lengths: Sequence[int]
    arranged: Order


def make_options(lengths: Lengths, **options: Any) -> TokenOptions:
    """Check the options that go with lengths.

    Raises:
        UsageError: for a value that cannot be.

    """
    found = TokenOptions(lengths, **options)
    for name, others in (("pack", (None,)), ("accumulate", ()), ("pad_to", (None, "chunk", "batch"))):
        value = getattr(found, name)
        is_count = type(value) is int and 1 <= value <= INT64_MAX
        if not is_count and value not in others:
            words = "`chunk`, `batch` or " if name == "pad_to" else ""
            raise UsageError(f"expected {words}a whole number of 1 or more, got {show(value)}", key=name)
    if found.cost not in get_args(Cost):
        raise UsageError(f"expected {' or '.join(get_args(Cost))}, got {show(found.cost)}", key="cost")
    return found


def arrange(config: Config, options: TokenOptions) -> Rows:
    """Put the lengths into the epoch's order, and pack them where that was asked for.

    Raises:
        UsageError: for lengths that are too few or too long, or orders that exclude each other.

    """
    lengths = options.lengths.first(config.data_size)
    if config.trace_sample is not None and (options.group_by_length or options.sort or options.pack):
        raise UsageError(
            "expected samples in order, to trace one, got another order",
            key="trace_sample",
            hint="leave out grouping, sorting and packing",
        )
    _check(lengths, options, config)
    values, arranged = lengths.values, _order_of(config, options)
    match arranged:
        case "grouped":
            values = _grouped(shuffled(values, config.seed), config, options)
        case "sorted":
            values = sorted(values, reverse=True)
        case "shuffled":
            values = shuffled(values, config.seed)
    if options.pack is None:
        return Rows(config, config, values, arranged)
    values = packed(values, options.pack)
    return Rows(config, make_config({**config.values(), "data_size": len(values)}), values, arranged)


def _order_of(config: Config, options: TokenOptions) -> Order:
    if options.group_by_length:
        return "grouped"
    if options.sort:
        return "sorted"
    return "shuffled" if config.shuffle else "data"


def _check(lengths: Lengths, options: TokenOptions, config: Config) -> None:
    if options.sort and (options.group_by_length or config.shuffle):
        other = "group_by_length" if options.group_by_length else "shuffle"
        raise UsageError(f"expected one order, got `sort` and `{other}`", key="sort")
    if options.pack is not None:
        lengths.expect_at_most(options.pack, "pack")
    if isinstance(options.pad_to, int):
        if options.pack is not None and options.pack > options.pad_to:
            raise UsageError(
                f"expected at least the {options.pack} tokens of `pack`, got {options.pad_to}", key="pad_to"
            )
        lengths.expect_at_most(options.pad_to, "pad_to")


def _grouped(shuffled_lengths: Sequence[int], config: Config, options: TokenOptions) -> list[int]:
    """Group as transformers' samplers do: by the rows that one loader draws for an optimizer step."""
    rows = config.batch_size
    if config.strategy == "ddp":
        rows = rows_per_rank(config, world_size(config) or 1)  # `all` is refused with the rows
    return grouped(shuffled_lengths, rows * options.accumulate)


def count_tokens(report: SplitReport, rows: Rows, options: TokenOptions) -> SplitReport:
    """Add the tokens to a report of the rows."""
    num_devices = len(report.devices)
    is_ranks = report.distribution is not None
    pad_to = options.pad_to or ("chunk" if is_ranks else "batch")
    order, sharings = _drawn(rows.config, rows.lengths, num_devices)
    tokens = Tokens(
        source=options.lengths.source,
        arranged=rows.arranged,
        seed=rows.config.seed,
        num_samples=rows.given.data_size,
        pack=options.pack,
        pad_to=pad_to,
        cost=options.cost,
        accumulate=options.accumulate,
        devices=tuple(report.devices),
        is_ranks=is_ranks,
        order=order,
        sharings=sharings,
        summary=summarize(
            each_batch(order, sharings, pad_to, is_quadratic=options.cost == "quadratic"),
            num_devices,
            options.accumulate,
        ),
    )
    return replace(report, tokens=_compared(tokens, rows, options))


def _compared(tokens: Tokens, rows: Rows, options: TokenOptions) -> Tokens:
    """Add the balance of another order: without what was asked for, or else with grouping."""
    if len(tokens.devices) == 1:
        return tokens
    config, lengths = rows.given, options.lengths.values[: rows.given.data_size]

    def balance(order: Sequence[int]) -> float:
        drawn, sharings = _drawn(config, order, len(tokens.devices))
        batches = each_batch(drawn, sharings, tokens.pad_to, is_quadratic=options.cost == "quadratic")
        return summarize(batches, len(tokens.devices)).balance

    if rows.arranged in {"data", "shuffled"} and options.pack is None:
        order = rows.lengths if rows.arranged == "shuffled" else shuffled(lengths, config.seed)
        return replace(tokens, grouped=balance(_grouped(order, config, options)))
    return replace(tokens, before=balance(shuffled(lengths, config.seed) if config.shuffle else lengths))


def _drawn(
    config: Config, lengths: Sequence[int], num_devices: int
) -> tuple[Sequence[int], tuple[Sharing, ...]]:
    """Return the lengths as the epoch draws them, repeated ones included, and how its batches are shared."""
    epoch = distribute_epoch(config, num_devices)
    sharings = (
        Sharing(count, split.sizes(), split.used(), epoch.in_turn) for _, count, split in epoch.batches()
    )
    return list(islice(cycle(lengths), epoch.drawn)), tuple(sharings)
