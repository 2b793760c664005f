"""The ranks read other numbers at one line, and then did not make the same collectives.

A branch on a number of the rank's own (its loss, its rows) takes ranks to different lines.

Seen in: the last numbers that the program read on each rank, if the ranks were stopped because they wait

Instead: decide together: reduce the number, or the decision, before the branch
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpdemo.ranks.events import Failure, Read
from dpdemo.ranks.mistakes.evidence import by_rank, differing_reads
from dpdemo.ranks.mistakes.registry import mistake
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpdemo.ranks.mistakes.evidence import Evidence


@mistake("steering", when_stopped=True)
def find(evidence: Evidence) -> Iterator[Mistake]:
    """Name the line whose numbers differed last, best one that was read alike before or is a truth value."""
    has_failed = any(noted[Failure] for noted in evidence.ranks.values())
    if not evidence.were_stopped or has_failed:
        return
    ranks = list(evidence.ranks)
    reads = [evidence.ranks[rank][Read] for rank in ranks]
    differing = [
        read for read in differing_reads(reads) if not read.is_partial and read.how != "numbers"
    ]  # lists and arrays are rows, mostly
    counts: dict[str, int] = {}
    for read in differing:
        counts[read.at] = counts.get(read.at, 0) + 1
    sure = [read for read in differing if read.how == "bool" or (read.number > 1 and counts[read.at] == 1)]
    last = {(mine[-1].at, mine[-1].number) for mine in reads if mine}
    likely = [read for read in differing if (read.at, read.number) in last]
    chosen = next(iter(sure or likely), None)
    if chosen is not None:
        yield _mistake(chosen, reads, ranks, is_sure=bool(sure))


def _mistake(read: Read, reads: Sequence[Sequence[Read]], ranks: Sequence[int], *, is_sure: bool) -> Mistake:
    return Mistake(
        f"The ranks read other numbers here just before, {by_rank(read, reads, ranks)}",
        read.at,
        "if it decides, decide together: dist.all_reduce the number first (a flag with ReduceOp.MAX)",
        "mistake" if is_sure else "note",
    )
