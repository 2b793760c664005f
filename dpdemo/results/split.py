"""The result of `simulate` and `run`: how an epoch is split, or was, in sentences around tables."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpdemo.results import rankwords as ranks
from dpdemo.results.advice import advice, find
from dpdemo.results.batches import UNKNOWN, BatchGroup, Shapes, Stop, is_lone
from dpdemo.results.devices import Devices, is_stretch
from dpdemo.results.grouptable import Groups, GroupTable
from dpdemo.results.report import TableReport
from dpdemo.results.splitdata import SplitData
from dpdemo.results.table import Block, Canvas, Fact, styled
from dpdemo.results.table import facts as fact_table
from dpdemo.wording import counted, percent

if TYPE_CHECKING:
    from dpdemo.results.tokens import Tokens

STRATEGIES = {"dp": "DataParallel", "ddp": "DistributedDataParallel"}


@dataclass(frozen=True, slots=True)
class SplitReport(SplitData):
    """The split of an epoch over devices, observed or predicted; see `SplitData` for its fields."""

    FORMS: ClassVar[tuple[str, ...]] = (*TableReport.FORMS, "transcript")

    @property
    def title(self) -> str:
        """The title of the picture."""
        return f"dpdemo {self.command}"

    @property
    def groups(self) -> Groups:
        """The groups of batches, as tables show them."""
        return Groups(self.devices, self.batches, self.wrapped, self.distribution, is_epoch=True)

    def pieces(self, form: str) -> Iterable[str]:
        """Yield the text of a format, piece by piece; `transcript` is the output of PyTorch's tutorial."""
        return self._transcript() if form == "transcript" else TableReport.pieces(self, form)

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield the title, each group of batches, and the summary."""
        yield styled(title(self), "bold")
        yield styled(setting(self), "dim")
        if self.partial:
            yield styled(interruption(self), "bold yellow")
        if self.tokens is not None:
            from dpdemo.results.tokens import token_tables

            yield from token_tables(self.tokens, canvas, verbose=self.verbose)
        else:
            table = GroupTable(self.groups, canvas)
            for group in self.listed():
                yield ()
                yield styled(heading(self, group), "bold")
                yield from table.blocks(group)
        yield ()
        yield fact_table(facts(self), remarks(self))

    def _transcript(self) -> Iterator[str]:
        """Yield the lines that PyTorch's DataParallel tutorial prints, in device order."""
        has_gpu_a_rank = self.distribution is not None and self.devices.kind == "cuda"
        number = len(self.devices) if has_gpu_a_rank else len(set(self.devices))
        if number > 1:
            yield f"Let's use {number} GPUs!\n"
        for group in self.batches:
            for _ in range(group.count):
                yield from _transcript_of(group)


def title(report: SplitData) -> str:
    """Head the report: `Predicted: linear over 8 GPUs`."""
    kind = "Predicted" if report.command == "simulate" else "Observed"
    if report.distribution is not None:
        where = ranks.over(report, report.distribution)
    else:
        where = over(report.devices, virtual=report.virtual)
    return f"{kind}: {report.model} {where}"


def over(devices: Devices, *, virtual: bool) -> str:
    """Name the devices: `over 8 GPUs`, `as 3 replicas over 1 virtual GPU`, `on the CPU`."""
    if devices.kind == "cpu":
        return "on the CPU"
    replicas = f"as {counted(len(devices), 'replica')} " if len(set(devices)) < len(devices) else ""
    return f"{replicas}over {counted(len(set(devices)), 'virtual GPU' if virtual else 'GPU')}"


def setting(report: SplitData) -> str:
    """Describe the setting: strategy, devices, batch size and other keys."""
    config = report.config
    if report.distribution is not None:
        parts = [_strategy(report), *ranks.setting(report, report.distribution)]
    else:
        parts = [_strategy(report), f"batch size {config.batch_size}", f"data size {config.data_size}"]
    if config.dim:
        parts.append(f"split along dimension {config.dim}")
    if config.drop_last:
        parts.append("short last batch left out")
    if report.tokens is not None:
        parts.append(report.tokens.setting())
    return ", ".join(filter(None, parts))


def _strategy(report: SplitData) -> str:
    devices = report.devices
    if devices.kind == "cpu" and report.distribution is None:
        return ""
    few = is_stretch(devices, (1,)) or len(devices) <= ranks.MANY
    named = few and report.distribution is None  # a line for each rank names its device
    which = f"{report.wrapped} in " if report.wrapped else ""
    strategy = f"{which}{STRATEGIES.get(report.strategy, report.strategy)}"
    return strategy + (f" on {devices}" if named else "")


def interruption(report: SplitData) -> str:
    """Describe how far an interrupted run came; "" for a whole one."""
    if not report.partial:
        return ""
    done = report.totals.batches
    return f"Interrupted: only the first {done} of {num_batches(report)} batches"


def num_batches(report: SplitData) -> int:
    """Count the batches of a whole epoch."""
    if report.distribution is not None:
        return ranks.num_batches(report, report.distribution)
    full, rest = divmod(report.config.data_size, report.config.batch_size)
    return full + (1 if rest and not report.config.drop_last else 0)


def span(group: BatchGroup) -> str:
    """Write the numbers of a group's batches: `4`, or `1–3`."""
    return str(group.first) if group.count == 1 else f"{group.first}–{group.last()}"


def heading(report: SplitData, group: BatchGroup) -> str:
    """Head a group of batches: `Batches 1–3 (3×): 30 samples each`."""
    samples = counted(group.batch_size, "sample")
    if group.count > 1:
        return f"Batches {span(group)} ({group.count}×): {samples} each"
    whole = report.config.batch_size if report.distribution is None else report.distribution.global_batch_size
    is_short_last = group.first == num_batches(report) and group.batch_size < whole
    return f"Batch {span(group)}: {samples}" + (", the short last one" if is_short_last else "")


def facts(report: SplitData) -> list[Fact]:
    """Sum up the epoch: name, number and what it means to a learner."""
    return (_totals(report) if report.tokens is None else _tokens(report, report.tokens)) + _stops(report)


def _tokens(report: SplitData, tokens: "Tokens") -> list[Fact]:
    """Sum up the tokens, which decide how long a step takes, in place of the balance of the rows."""
    rows = [fact for fact in _totals(report) if fact[0] not in {"Balance", "Sample weight"}]
    if tokens.pack is not None:
        rows = [("Rows" if name == "Samples" else name, number, what) for name, number, what in rows]
    return rows + tokens.facts()


def _totals(report: SplitData) -> list[Fact]:
    if report.distribution is not None:
        return ranks.facts(report, report.distribution)
    totals = report.totals
    found = [("Batches", str(totals.batches), ""), ("Samples", str(totals.samples), "")]
    if len(report.devices) > 1 and report.batches:
        found.append(("Balance", percent(totals.utilization), _waiting(report)))
        found.append(("Sample weight", "", _weighing(report)))
    return found


def _stops(report: SplitData) -> list[Fact]:
    """Trace the sample, a line for each time that it goes through the model."""
    if report.trace is None:
        return []
    name = f"Sample {report.trace.sample}"
    if not report.trace.stops:
        return [(name, "in no batch", "so far" if report.partial else "it is left out")]
    return [(name, f"batch {stop.batch}", _way(report, stop)) for stop in report.trace.stops]


def _way(report: SplitData, stop: Stop) -> str:
    if report.distribution is not None:
        return f"row {stop.row}, in and out, on {ranks.place_of(report, stop.replica)}"
    replica = f" (replica {stop.replica})" if len(set(report.devices)) < len(report.devices) else ""
    out = f"row {stop.output_row} of the output on {stop.output_device}"
    return f"row {stop.row} on {stop.device}{replica}, {out}"


def _waiting(report: SplitData) -> str:
    if report.totals.utilization >= 1:
        return ": no device ever waits for another"
    return ": of the row slots filled while the largest chunk runs"


def _weighing(report: SplitData) -> str:
    if report.sample_weight == 1:
        return "every sample counts the same"
    if report.sample_weight < 1.005:
        return "every sample counts the same, or hardly more"
    group = max(report.batches, key=lambda group: group.sample_weight)
    short = min(group.in_model, key=lambda replica: replica.rows)
    replica = f" (replica {short.replica})" if len(set(report.devices)) < len(report.devices) else ""
    where = f"{'batch' if group.count == 1 else 'batches'} {span(group)}"
    return (
        f"a sample on {short.device}{replica} in {where} counts {report.sample_weight:.2f} times its fair "
        "share if the loss is averaged inside the model"
    )


def remarks(report: SplitData) -> list[tuple[str, str]]:
    """List a note, warnings and a tip for a prediction, while there is still time to choose."""
    if report.command != "simulate":
        return []
    distribution, tokens = report.distribution, report.tokens
    unknown = any(not replica.output for group in report.batches for replica in group.in_model)
    found = []
    if unknown and distribution is None:
        how = f"dpdemo run --virtual --gpus {max(len(report.devices), 1)} --model {report.model}"
        found.append(("Note", f"? is what a model of your own returns; this shows it: {how}"))
    warnings = [] if distribution is None else ranks.warnings(report, distribution)
    warnings += [] if tokens is None else tokens.warnings()
    warnings += [str(finding) for finding in find(report) if finding.kind == "lone-sample"]
    tip = "" if tokens is None else tokens.tip()
    tip = tip or (advice(report) if distribution is None else ranks.tip(report, distribution))
    return found + [("Warning", warning) for warning in warnings] + ([("Tip", tip)] if tip else [])


def _transcript_of(group: BatchGroup) -> Iterator[str]:
    for replica in group.in_model:
        # the tab and the underscore below are the tutorial's own
        yield f"\tIn Model: input size {_size(replica.input)} output size {_size(replica.output)}\n"
    yield f"Outside: input size {_size(group.outside.input)} output_size {_size(group.outside.output)}\n"


def _size(shapes: Shapes) -> str:
    if not shapes:
        return UNKNOWN
    if is_lone(shapes):
        return f"torch.Size({list(shapes[0][1])})"
    return "{" + ", ".join(f"{path!r}: torch.Size({list(shape)})" for path, shape in shapes) + "}"
