"""A file is kept by a number of the rank's own.

Each rank evaluates its share of the rows: the "best" model is then the best for one share.

Seen in: numbers of an evaluation that differ between ranks, read just before a file is written

Instead: reduce the metric over the ranks before it decides
"""

import os
from collections import Counter
from collections.abc import Sequence

from dpdemo.ranks.events import FileWritten, Read
from dpdemo.ranks.mistakes.evidence import differing_reads, read_by_rank
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_REMEDY = "reduce it over the ranks before it decides: dist.all_reduce the sums and the counts, then divide"


@mistake("local-best")
def find(evidence: Evidence) -> Found:
    """Look for files that were written after some evaluations and not after others."""
    ranks = list(evidence.ranks)
    reads = [evidence.ranks[rank][Read] for rank in ranks]
    lines = _lines_of_evaluations(reads)
    own = [row for row in differing_reads(reads, is_training=False) if row[0].at in lines]
    shared = _shared_numbers(reads, lines)
    own = [row for row in own if row[0].how != "numbers" or row[0].collectives not in shared]
    lines &= {row[0].at for row in own}
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
            row = next((each for each in own if each[0].collectives == files[-1].collectives), None)
            if row is not None:
                numbers = read_by_rank(ranks, row)
                written = f"{name} was written after {len(saved)} of {len(rounds)} evaluations"
                yield Mistake(f"{written}, by a number of the rank's own: {numbers}", row[0].at, _REMEDY)
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
