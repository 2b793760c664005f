"""A file is kept by a number of the rank's own.

Each rank evaluates its share of the rows: the "best" model is then the best for one share.

Seen in: numbers of an evaluation that differ between ranks, read just before a file is written

Instead: reduce the metric over the ranks before it decides
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from dpdemo.ranks.events import FileWritten, Read
from dpdemo.ranks.mistakes.evidence import by_rank, differing_reads
from dpdemo.ranks.mistakes.registry import mistake
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpdemo.ranks.mistakes.evidence import Evidence


@mistake("local-best")
def find(evidence: Evidence) -> Iterator[Mistake]:
    """Look for files that were written after some evaluations and not after others."""
    ranks = list(evidence.ranks)
    reads = [evidence.ranks[rank][Read] for rank in ranks]
    lines = _lines_of_evaluations(reads)
    own = [read for read in differing_reads(reads, is_training=False) if read.at in lines]
    shared = _shared_numbers(reads, lines)
    own = [read for read in own if read.how != "numbers" or read.collectives not in shared]
    lines &= {read.at for read in own}
    for rank, mine in zip(ranks, reads, strict=True):
        rounds = sorted({read.collectives for read in mine if read.at in lines})
        by_line: dict[str, list[FileWritten]] = {}
        for event in evidence.ranks[rank][FileWritten]:
            by_line.setdefault(event.at, []).append(event)
        for files in by_line.values():
            saved = [rounds.index(event.collectives) + 1 for event in files if event.collectives in rounds]
            name = os.path.basename(files[-1].path)  # noqa: PTH119 - text
            if not saved or not _is_choice(saved, len(rounds), name):
                continue
            read = next((each for each in own if each.collectives == files[-1].collectives), None)
            if read is not None:
                yield _mistake(read, reads, ranks, f"{name} was written after {len(saved)} of {len(rounds)}")
                return


def _lines_of_evaluations(ranks: Sequence[Sequence[Read]]) -> set[str]:
    """Return the lines that all ranks read as often, and never in training.

    Where one rank evaluates alone, its number is of all rows; a line that training reads too draws batches.
    """
    counts = [Counter(read.at for read in mine) for mine in ranks]
    trained = {read.at for mine in ranks for read in mine if read.is_training}
    return {at for at in counts[0] if len({count[at] for count in counts}) == 1} - trained


def _shared_numbers(ranks: Sequence[Sequence[Read]], lines: set[str]) -> set[int]:
    """Return after which collectives the ranks read a number that is the same on all and changes: a mean.

    Predictions or pictures that a rank reads beside it decide nothing.
    """
    values = [
        [(read.at, read.value, read.collectives) for read in mine if read.at in lines] for mine in ranks
    ]
    alike = set(values[0]).intersection(*values[1:])
    counts = Counter(at for at in {(at, value) for at, value, _ in alike})
    changing = {at for at in lines if sum(name == at for name, _ in counts) > 1}
    return {collectives for at, _, collectives in alike if at in changing}


def _is_choice(saved: Sequence[int], count: int, name: str) -> bool:
    """Return whether a file was written after some rounds, and not after each, each second or the last."""
    steps = {after - before for before, after in zip([0, *saved], saved, strict=False)}
    is_regular = len(steps) == 1 or saved == [count]
    return len(saved) < count and ("best" in name.lower() or not is_regular)


def _mistake(read: Read, reads: Sequence[Sequence[Read]], ranks: Sequence[int], written: str) -> Mistake:
    return Mistake(
        f"{written} evaluations, by a number of the rank's own: {by_rank(read, reads, ranks)}",
        read.at,
        "reduce it over the ranks before it decides: dist.all_reduce the sums and the counts, then divide",
    )
