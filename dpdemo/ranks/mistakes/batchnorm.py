"""BatchNorm is not synced (a note: many programs mean it).

Each rank normalizes by its own rows, and saves statistics of its own.

Seen in: its running statistics after a training step

Instead: `nn.SyncBatchNorm.convert_sync_batchnorm(model)`, unless each rank is to normalize its own rows
"""

from collections.abc import Sequence

from dpdemo.ranks.events import Statistics
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_CLOSE, _TINY = 1e-3, 1e-12
_REMEDY = "nn.SyncBatchNorm.convert_sync_batchnorm(model), unless each rank is to normalize its own rows"


@mistake("batchnorm")
def find(evidence: Evidence) -> Found:
    """Compare the running statistics of the last step that all ranks noted."""
    for team in evidence.shared:
        by_step = [{event.step: event.stats for event in noted[Statistics]} for noted in team.noted]
        steps = set.intersection(*map(set, by_step))
        if not steps:
            continue
        worst, layer = _worst([stats[max(steps)] for stats in by_step])
        if layer:
            text = f"BatchNorm `{layer}` is not synced: running statistics differ by up to {worst:.3g}"
            yield Mistake(text, team.at, _REMEDY, "note")


def _worst(ranks: Sequence[dict[str, tuple[float, ...]]]) -> tuple[float, str]:
    """Return the largest difference, and the layer that has it."""
    worst, layer = 0.0, ""
    for name in ranks[0]:
        for values in zip(*(layers.get(name, ()) for layers in ranks), strict=False):
            apart = max(values) - min(values)
            if apart > worst and apart > _CLOSE * max(_TINY, *map(abs, values)):
                worst, layer = apart, name
    return worst, layer
