"""A GradScaler left a step out on some ranks only.

A scaler looks at the gradients that its rank has: under FullyShardedDataParallel at the rank's own shards.

Seen in: the steps that each rank's scaler left out

Instead: `torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler`
"""

from dpdemo.ranks.events import StepLeftOut
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("step-left-out")
def find(evidence: Evidence) -> Found:
    """Name the first step that not all ranks left out."""
    for team in evidence.wrapped:
        left = [{event.step: event for event in noted[StepLeftOut]} for noted in team.noted]
        for step in sorted({step for mine in left for step in mine}):
            who = [rank for rank, mine in zip(team.ranks, left, strict=True) if step in mine]
            if len(who) < len(left):
                event = next(mine[step] for mine in left if step in mine)
                yield Mistake(
                    f"The GradScaler left step {step} out on rank {', '.join(map(str, who))} alone",
                    event.at,
                    "use torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler, which asks all ranks",
                )
                break
