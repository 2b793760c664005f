"""A collective changed, gathered or sent away a tensor that backward goes through.

The functions of `torch.distributed` are no steps of autograd: the gradient is that of the rank's own value.

Seen in: the graph of each loss, and the parameters that got no gradient

Instead: `torch.distributed.nn.functional.all_reduce(tensor)`, which returns the result
"""

from dpdemo.ranks.events import OutOfGraph
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_FUNCTIONS = {"all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter"}


@mistake("out-of-graph")
def find(evidence: Evidence) -> Found:
    """Name each line once."""
    told = set()
    for noted in evidence.ranks.values():
        for event in noted[OutOfGraph]:
            if event.at in told:
                continue
            told.add(event.at)
            yield _mistake(event)


def _mistake(event: OutOfGraph) -> Mistake:
    name = event.op.removesuffix("_coalesced")
    advice = f"torch.distributed.nn.functional.{_FUNCTIONS.get(name, name)}, which has a gradient"
    if event.is_lost:
        text = f"{event.op} ends autograd's graph: no gradient comes to the parameters before it"
        return Mistake(text, event.at, advice)
    if name.startswith("all_gather"):
        text = f"The loss of {event.backward_at} uses what {event.op} gathered"
        if event.has_own:
            text = f"{text}: only the rank's own part has a gradient, and the average divides it by the ranks"
            return Mistake(text, event.at, advice, "note")
        return Mistake(f"{text}, through which no gradient goes back", event.at, advice)
    return Mistake(
        f"{event.op} changed a tensor that backward ({event.backward_at}) goes through: autograd does not "
        "know it, and the gradient lacks the other ranks' part",
        event.at,
        f"tensor = torch.distributed.nn.functional.{name}(tensor), which has a gradient; to print a number, "
        "reduce tensor.detach()",
    )
