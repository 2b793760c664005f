"""The result of `exec --ranks`: modules, samples, collectives and peaks; equal ranks share a row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from dpdemo.results.devices import alike, label, spans
from dpdemo.results.formats import in_json
from dpdemo.results.rankparts import Part, folded, ranks_label
from dpdemo.results.ranksamples import Coverage, RankSamples, Trace, samples_part, trace_part
from dpdemo.results.report import Report
from dpdemo.results.table import Block, Canvas, Uncut, styled
from dpdemo.sizes import size
from dpdemo.wording import counted

_MOST_PARTS, _MOST_SHAPES = 8, 4
"""Modules and loaders, and shapes of one, that are drawn; the JSON form has them all."""


@dataclass(frozen=True)
class Collective:
    """The calls of one collective by one rank; `num_bytes` is the sum over its tensors."""

    name: str
    count: int
    num_bytes: int


@dataclass(frozen=True)
class RankModel:
    """A module that is trained by several ranks, on one; `shapes` counts forward calls by their shapes."""

    name: str
    at: str
    forwards: int
    backwards: int
    steps: int
    shapes: dict[str, int]
    wrapper: str = "DistributedDataParallel"
    skipped: int = 0
    """Further steps that a GradScaler left out, since gradients were infinite or NaN."""


@dataclass(frozen=True)
class RankResult:
    """One rank: its exit code, its collectives, and what it held on each GPU at its peak."""

    rank: int
    exit_code: int
    collectives: tuple[Collective, ...]
    peak_bytes: dict[str, int]
    models: tuple[RankModel, ...] = ()
    samples: tuple[RankSamples, ...] = ()


@dataclass(frozen=True)
class Mistake:
    """A mistake: its effect, its line in the program, and the remedy; a note if some programs mean it."""

    text: str
    at: str
    advice: str
    kind: Literal["mistake", "note"] = "mistake"

    def __str__(self) -> str:
        return f"{self.text} ({self.at}): {self.advice}"

    def blocks(self) -> Iterator[Block]:
        """Yield a line for the mistake and one for the remedy."""
        yield styled(f"{self.kind.capitalize()}: ", "bold yellow") + styled(f"{self.text} ({self.at})")
        yield styled(f"  {self.advice}")


@dataclass(frozen=True)
class Comparison:
    """The answer: gradients are equal to a tolerance, differ for named reasons, or were not compared."""

    verdict: Literal["equal", "different", "not checked"]
    num_ranks: int
    reason: str = ""
    """Why nothing was compared, or the comparison is not sure."""
    steps: tuple[int, ...] = ()
    difference: float | None = None
    """The largest relative difference of a step's gradients."""
    tolerance: float | None = None
    mistakes: tuple[Mistake, ...] = ()
    remarks: tuple[str, ...] = ()

    def blocks(self) -> Iterator[Block]:
        """Yield a line for the answer, and two for each mistake."""
        yield styled(self.headline(), "bold")
        for mistake in self.mistakes:
            yield from mistake.blocks()
        for remark in self.remarks:
            yield styled(f"  Note: {remark}")

    def headline(self) -> str:
        """Return the answer in one line."""
        if self.verdict == "not checked":
            return f"Not checked against one process: {self.reason}"
        steps = ", ".join(spans(self.steps))
        which = f"the gradients of step{'s' * (len(self.steps) > 1)} {steps} on {self.num_ranks} ranks"
        apart = f"relative difference {self.difference:.1e}, tolerance {self.tolerance:.1e}"
        if self.verdict == "equal":
            return f"Equal to one process: {which} ({apart})"
        return f"Different from one process: {which} ({apart})"


@dataclass(frozen=True)
class RanksResult(Report):
    """The run of a program as ranks of torch.distributed; `problem` tells why they were stopped."""

    SCHEMA: ClassVar[str] = "dpdemo.ranks/1"
    title: ClassVar[str] = "dpdemo exec --ranks"
    program: str
    arguments: tuple[str, ...]
    ranks: tuple[RankResult, ...]
    problem: tuple[str, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    comparison: Comparison | None = None
    trace: Trace | None = None
    verbose: bool = field(default=False, compare=False, metadata=in_json(""))
    """Whether collectives and peaks are drawn although nothing is wrong, and there are models or loaders."""

    def peaks(self) -> dict[str, int]:
        """Return the peak of each GPU; those of two ranks on one GPU add up."""
        found: dict[str, int] = {}
        for rank in self.ranks:
            for device, held in rank.peak_bytes.items():
                found[device] = found.get(device, 0) + held
        return dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))

    def blocks(self, _: Canvas) -> Iterator[Block]:
        """Yield modules, samples, collectives, peaks and mistakes; equal ranks share a row."""
        for number, line in enumerate(self.problem):
            yield Uncut(styled(line, "" if number else "bold red"))
        if self.problem:
            yield ()
        yield styled(_title(self), "bold")
        if not self.problem and not any(rank.collectives for rank in self.ranks):
            yield styled("No rank made a collective, so the ranks trained or computed apart.")
        parts = [*_models(self), *_loaders(self)]
        traced = [trace_part(self.trace)] if self.trace is not None else []
        sums = _sums(self) if self.verbose or _is_wrong(self) or not parts else ()
        for part in [*parts[:_MOST_PARTS], *traced, *sums]:
            yield ()
            yield from part.blocks()
        if len(parts) > _MOST_PARTS:
            yield ()
            left = len(parts) - _MOST_PARTS
            yield styled(f"{left} modules or loaders are not listed: --save FILE.json")
        if self.mistakes:
            yield ()
        for mistake in self.mistakes:
            yield from mistake.blocks()
        if self.comparison is not None:
            yield ()
            yield from self.comparison.blocks()


def _title(report: RanksResult) -> str:
    """Head the report: `Ran on 4 ranks: train.py`."""
    failed = [rank.rank for rank in report.ranks if rank.exit_code]
    ended = f"; {ranks_label(failed)} failed" if failed and not report.problem else ""
    return f"Ran on {counted(len(report.ranks), 'rank')}: {report.program}{ended}"


def _is_wrong(report: RanksResult) -> bool:
    """Return whether collectives and peaks may explain something: a problem, a failure or a mistake."""
    failed = any(rank.exit_code for rank in report.ranks)
    return bool(report.problem) or failed or any(each.kind == "mistake" for each in report.mistakes)


def _sums(report: RanksResult) -> Iterator[Part]:
    names = sorted({each.name for rank in report.ranks for each in rank.collectives})
    rows: list[tuple[str, ...]] = []
    before = ""
    for name in names:

        def cells(rank: RankResult, name: str = name) -> tuple[str, ...]:
            return next((_collective(each) for each in rank.collectives if each.name == name), ())

        for numbers, found in folded(report.ranks, cells):
            if found:
                rows.append(("" if ranks_label(numbers) == before else ranks_label(numbers), *found))
                before = ranks_label(numbers)
    if rows:
        head = ("ranks", "collective of each", "calls", "bytes")
        yield Part("Collectives", ("keep", "fold", "right", "right"), head, tuple(rows))
    peaks = report.peaks()
    if peaks:
        groups = alike(peaks, peaks.__getitem__).items()
        held = tuple((f"{label(names)}{' each' * (len(names) > 1)}", size(peak)) for peak, names in groups)
        yield Part("Peak memory", ("fold", "right"), ("GPU", "bytes"), held)


def _collective(calls: Collective) -> tuple[str, str, str]:
    return calls.name, str(calls.count), size(calls.num_bytes) if calls.num_bytes else ""


def _models(report: RanksResult) -> Iterator[Part]:
    keys = dict.fromkeys(_key(model) for rank in report.ranks for model in rank.models)
    for key in keys:
        wrapper, name, at = key
        of_ranks = {
            rank.rank: [model for model in rank.models if _key(model) == key] for rank in report.ranks
        }

        def cells(rank: RankResult, of_ranks: dict[int, list[RankModel]] = of_ranks) -> tuple[str, ...]:
            return _model(of_ranks[rank.rank])

        most = max(map(len, of_ranks.values()))
        yield Part(
            f"{wrapper}({name}) at {at}{f', made {most} times' if most > 1 else ''}",
            ("keep", "right", "right", "right", "fold"),
            ("ranks", "calls", "averaged\nbackwards", "steps", "In Model: input → output"),
            tuple((ranks_label(ranks), *found) for ranks, found in folded(report.ranks, cells) if found),
            (skipped,) if (skipped := _skipped(of_ranks)) else (),
        )


def _key(model: RankModel) -> tuple[str, str, str]:
    return model.wrapper, model.name, model.at


def _model(models: Sequence[RankModel]) -> tuple[str, ...]:
    if not models:
        return ()
    shapes: dict[str, int] = {}
    for model in models:
        for shape, count in model.shapes.items():
            shapes[shape] = shapes.get(shape, 0) + count
    listed = [f"{count} × {shape}" if len(shapes) > 1 else shape for shape, count in shapes.items()]
    more = [f"and {len(listed) - _MOST_SHAPES} others"] if len(listed) > _MOST_SHAPES else []
    sums = (sum(getattr(model, key) for model in models) for key in ("forwards", "backwards", "steps"))
    return *map(str, sums), "\n".join(listed[:_MOST_SHAPES] + more)


def _skipped(of_ranks: dict[int, list[RankModel]]) -> str:
    """Report steps that a GradScaler skipped; ranks that differ each have their number."""
    counts = {rank: sum(model.skipped for model in models) for rank, models in of_ranks.items()}
    by_count = alike(counts, counts.__getitem__).items()
    parts = [
        f"{counted(count, 'step')}{f' on ranks {ranks_label(same)}' if len(by_count) > 1 else ''}"
        for count, same in by_count
        if count
    ]
    why = "Skipped by the GradScaler, since a gradient was infinite or NaN"
    return f"{why}: {'; '.join(parts)}" if parts else ""


def _loaders(report: RanksResult) -> Iterator[Part]:
    for at in dict.fromkeys(each.at for rank in report.ranks for each in rank.samples):
        of_ranks = {
            rank.rank: next((each for each in rank.samples if each.at == at), None) for rank in report.ranks
        }
        yield samples_part(of_ranks, [each for each in report.coverage if each.at == at])
