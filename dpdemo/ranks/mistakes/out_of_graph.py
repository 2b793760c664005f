"""A collective changed a tensor that backward goes through.

The functions of `torch.distributed` are no steps of autograd: the gradient is that of the rank's own value.

Seen in: backward passes that come to a tensor through a use of it after the collective

Instead: `torch.distributed.nn.functional.all_reduce(tensor)`, which returns the result
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpdemo.ranks.events import OutOfGraph
from dpdemo.ranks.mistakes.registry import mistake
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.ranks.mistakes.evidence import Evidence


@mistake("out-of-graph")
def find(evidence: Evidence) -> Iterator[Mistake]:
    """Name each line once."""
    told = set()
    for noted in evidence.ranks.values():
        for event in noted[OutOfGraph]:
            if event.at in told:
                continue
            told.add(event.at)
            name = event.op.removesuffix("_coalesced")
            yield Mistake(
                f"{event.op} changed a tensor that backward ({event.backward_at}) goes through: autograd "
                "does not know it, and the gradient lacks the other ranks' part",
                event.at,
                f"tensor = torch.distributed.nn.functional.{name}(tensor), which has a gradient; "
                "for a number to print, reduce tensor.detach()",
            )
