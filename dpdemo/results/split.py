"""The result of `simulate` and `run`: how an epoch is split, or was."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from dpdemo.results import splitwords as words
from dpdemo.results.batches import UNKNOWN, BatchGroup, Shapes, is_lone
from dpdemo.results.grouptable import Groups, GroupTable
from dpdemo.results.report import Report
from dpdemo.results.splitdata import SplitData
from dpdemo.results.table import Block, Canvas, facts


@dataclass(frozen=True, slots=True)
class SplitReport(SplitData):
    """The split of an epoch over devices, observed or predicted; see `SplitData` for its fields."""

    SCHEMA: ClassVar[str] = "dpdemo.report/1"
    FORMS: ClassVar[tuple[str, ...]] = (*Report.FORMS, "transcript")

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
        return self._transcript() if form == "transcript" else Report.pieces(self, form)

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield the title, each group of batches, and the summary."""
        yield canvas.text(words.title(self), style="bold")
        yield canvas.text(words.setting(self), style="dim")
        if self.partial:
            yield canvas.text(words.interruption(self), style="bold yellow")
        if self.tokens is not None:
            from dpdemo.results.tokens import token_tables

            yield from token_tables(self.tokens, canvas, verbose=self.verbose)
        else:
            table = GroupTable(self.groups, canvas)
            for group in self.listed():
                yield ()
                yield canvas.text(words.heading(self, group), style="bold")
                yield from table.blocks(group)
        yield ()
        yield facts(canvas, words.facts(self), words.remarks(self))

    def _transcript(self) -> Iterator[str]:
        """Yield the lines that PyTorch's DataParallel tutorial prints, in device order."""
        has_gpu_a_rank = self.distribution is not None and self.devices.kind == "cuda"
        number = len(self.devices) if has_gpu_a_rank else len(set(self.devices))
        if number > 1:
            yield f"Let's use {number} GPUs!\n"
        for group in self.batches:
            for _ in range(group.count):
                yield from _transcript_of(group)


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
