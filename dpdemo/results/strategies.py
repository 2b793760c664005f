"""The result of `memory` for several strategies: a column for each, and which of them fits."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from dpdemo.results.formats import Row
from dpdemo.results.memory import MemoryReport, at_phase, setting_parts
from dpdemo.results.memorydata import KEYS, Answer
from dpdemo.results.memorytable import GpuLine, bars, room, table_of
from dpdemo.results.report import Report
from dpdemo.results.table import Block, Canvas, styled
from dpdemo.results.wrapping import NAMES, SHORT
from dpdemo.sizes import size
from dpdemo.wording import counted


@dataclass(frozen=True, slots=True)
class StrategiesReport(Report):
    """The same model under several strategies: a memory report for each."""

    SCHEMA: ClassVar[str] = "dpdemo.memory.strategies/1"
    DERIVED: ClassVar[tuple[str, ...]] = ("fits",)
    columns: ClassVar[tuple[str, ...]] = (
        *("strategy", "device", "rows", *(f"{key}_bytes" for key in KEYS)),
        *("peak_bytes", "phase", "capacity_bytes", "spare_bytes", "fits"),
        *("reserved_bytes", "needed_bytes", "answer", "largest_rows"),
    )
    reports: tuple[MemoryReport, ...]

    @property
    def fits(self) -> bool:
        """Whether the step runs under at least one strategy."""
        return any(_does_fit(report) for report in self.reports)

    def each_row(self) -> Iterator[Row]:
        """Yield a row per strategy: that of its fullest GPU, and the rows of a GPU that fit at most."""
        for report in self.reports:
            gpu = report.fullest
            room_of = (gpu.capacity_bytes, gpu.spare_bytes, gpu.fits)
            needs = (gpu.reserved_bytes, gpu.needed_bytes, gpu.answer)
            largest = None if report.fit is None else largest_rows(report)
            named = (report.config.strategy, gpu.device, gpu.rows)
            yield *named, *gpu.parts, gpu.peak_bytes, gpu.phase, *room_of, *needs, largest

    def data(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**Report.data(self), "reports": [report.data() for report in self.reports]}

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield title and setting, the table, the bars, the answer and notes."""
        first = self.reports[0]
        kind = "an inference call" if first.training.inference else "a training step"
        gpus = counted(first.num_devices, "GPU")
        yield styled(f"Predicted: {kind} of {first.model}, {gpus}, the fullest of each strategy", "bold")
        yield styled(", ".join(setting_parts(first)), "dim")
        lines = [GpuLine(SHORT[report.config.strategy], 1, report.fullest) for report in self.reports]
        extra = []
        if first.fit is not None:
            extra = [("most rows each", [str(largest_rows(report)) for report in self.reports])]
        for band in table_of(lines, extra, canvas):
            yield ()
            yield band
        if canvas.draws_bars:
            yield ()
            yield bars(lines, canvas)
        yield ()
        for report in self.reports:
            yield styled(verdict(report), "bold" if _does_fit(report) else "bold red")
        for note in self._notes():
            yield styled(note, "dim")

    @property
    def verdict(self) -> str:
        """The answer for each strategy."""
        return " ".join(verdict(report) for report in self.reports)

    def _notes(self) -> Iterator[str]:
        for report in self.reports:
            strategy = report.config.strategy
            words = report.wrapping.words(strategy) if report.wrapping else []
            if words:
                yield f"{SHORT[strategy]}: {', '.join(words)}."
        by_note: dict[str, list[str]] = {}
        for report in self.reports:
            for note in report.notes:
                by_note.setdefault(note, []).append(SHORT[report.config.strategy])
        for note, names in by_note.items():
            is_of_all = len(names) == len(self.reports)
            yield note if is_of_all else f"{', '.join(names)}: {note}"


def largest_rows(report: MemoryReport) -> int:
    """Return the most rows that each GPU can have, where the largest batch was searched."""
    largest = 0 if report.fit is None else report.fit.largest
    return largest if report.config.strategy != "dp" else -(-largest // report.num_devices)


def _does_fit(report: MemoryReport) -> bool:
    return bool(report.fit.largest) if report.fit is not None else report.fits


def verdict(report: MemoryReport) -> str:
    """Answer for one strategy in a sentence."""
    gpu = report.fullest
    name = NAMES[report.config.strategy]
    if report.fit is not None:
        return f"{name}: at most {counted(largest_rows(report), 'row')} on each GPU."
    where = f"{size(gpu.peak_bytes)} on {gpu.device}, {at_phase(gpu.phase)}"
    if gpu.capacity_bytes is None:
        return f"{name}: {where}."
    answers: dict[Answer, str] = {"fits": "fits", "tight": "is tight", "does not fit": "does not fit"}
    return f"{name} {answers[gpu.answer]}: {where}; {room(gpu)}."
