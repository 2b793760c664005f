"""The ranks read other numbers at one line, and then did not make the same collectives.

A branch on a number of the rank's own (its loss, its rows) takes ranks to different lines.

Seen in: the last numbers that the program read on each rank, if the ranks were stopped because they wait

Instead: decide together: reduce the number, or the decision, before the branch
"""

from collections import Counter
from collections.abc import Sequence

from dpdemo.ranks.events import Failure, Read
from dpdemo.ranks.mistakes.evidence import differing_reads, read_by_rank
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("steering", when_stopped=True)
def find(evidence: Evidence) -> Found:
    """Name the line whose numbers differed last, best one that was read alike before or is a truth value."""
    has_failed = any(noted[Failure] for noted in evidence.ranks.values())
    if not evidence.are_stuck or has_failed:
        return
    ranks = list(evidence.ranks)
    reads = [evidence.ranks[rank][Read] for rank in ranks]
    # lists and arrays are rows, mostly
    differing = [row for row in differing_reads(reads) if not row[0].is_partial and row[0].how != "numbers"]
    counts = Counter(row[0].at for row in differing)
    late = [row for row in differing if row[0].number > 1 and counts[row[0].at] == 1]
    sure = [row for row in differing if row in late or row[0].how == "bool"]
    last = {(mine[-1].at, mine[-1].number) for mine in reads if mine}
    likely = [row for row in differing if (row[0].at, row[0].number) in last]
    for row in (sure or likely)[:1]:
        yield _mistake(row, ranks, is_sure=bool(sure))


def _mistake(row: Sequence[Read], ranks: Sequence[int], *, is_sure: bool) -> Mistake:
    return Mistake(
        f"The ranks read other numbers here just before, {read_by_rank(ranks, row)}",
        row[0].at,
        "if it decides, decide together: dist.all_reduce the number first (a flag with ReduceOp.MAX)",
        "mistake" if is_sure else "note",
    )
