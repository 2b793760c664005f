"""Buffers differ between ranks (a note: some programs mean it).

DistributedDataParallel sends rank 0's buffers before a forward pass, or none: what a rank adds is its own.

Seen in: the buffers of the model at the end, without those of BatchNorm

Instead: compute them from all ranks' rows: `dist.all_reduce` sums and counts before they change a buffer
"""

from dpdemo.ranks.events import Buffers
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_CLOSE, _MAX_NAMES = 1e-3, 4


@mistake("buffers")
def find(evidence: Evidence) -> Found:
    """Compare the buffers of models that the ranks train together."""
    for team in evidence.wrapped:
        noted = [mine[Buffers][-1].values for mine in team.noted if mine[Buffers]]
        if len(noted) < len(team.noted):
            continue
        names = [
            name
            for name in noted[0]
            if any(
                max(row) - min(row) > _CLOSE * max(map(abs, row))
                for row in zip(*(values.get(name, ()) for values in noted), strict=False)
            )
        ]
        if names:
            more = f" and {len(names) - _MAX_NAMES} others" if len(names) > _MAX_NAMES else ""
            shown = ", ".join(f"`{name}`" for name in names[:_MAX_NAMES])
            yield Mistake(
                f"Buffers differ between ranks at the end: {shown}{more}",
                team.at,
                "dist.all_reduce the sums and counts that change them, unless each rank is to have its own",
                "note",
            )
