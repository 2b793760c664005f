"""Several ranks wrote one file.

Ranks that write the same path at the same time may leave a file that none of them wrote.

Seen in: files opened for writing, and `torch.save`, with no collective in between

Instead: write it on rank 0 alone, or a file for each rank
"""

import os
from collections import defaultdict

from dpdemo.ranks.events import FileWritten
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("same-file")
def find(evidence: Evidence) -> Found:
    """Compare the files that ranks wrote between the same collectives."""
    writers: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)
    for rank, noted in evidence.ranks.items():
        for event in noted[FileWritten]:
            writers[event.path, event.collectives][rank] = event.at
    told: set[str] = set()
    for (path, _), ranks in writers.items():
        if len(ranks) > 1 and path not in told:
            told.add(path)
            yield Mistake(
                f"{len(ranks)} ranks wrote {os.path.basename(path)}",  # noqa: PTH119 - text
                ranks[min(ranks)],
                "write it on rank 0 alone, or a file for each rank",
            )
