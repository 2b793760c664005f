"""What a replica raises for a reason that no other rule knows, forward or backward: DP390 to DP392."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence, Probe, Raised
from dpdemo.checking.failing import failed_through
from dpdemo.checking.looking import crossed_devices, entered_at, failures, for_any_rows, reads_state
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.hooking import keys_read_in_vain
from dpdemo.checking.rewriting.outer import kept_on_the_context, moved_to_the_replica
from dpdemo.checking.rewriting.squeezed import batch_kept, has_a_lone_row
from dpdemo.checking.source import function_at
from dpdemo.checking.unregistered import comes_of_no_parameters
from dpdemo.checking.writes import lines_leading_to
from dpdemo.reports.check import Change, Place

_KNOWN = (
    "same device|has no attribute|missing \\d+ required|Expected hidden|more than 1 "
    "(value|spatial)|deepcopy protocol|"
    "requires_grad flags of leaf|Broadcast(Backward)? is a view and|"
    "batch_sizes should always|hx should|1D CPU int64|thread\\._local"
)
_AGAIN = "backward through the graph a second time"
"""What the two runs of a check share, such as a cached tensor, would raise again on one GPU too."""


@rule("DP390", "replica-raised", "error",
      unless=("DP106", "DP201", "DP205", "DP207", "DP209", "DP212", "DP214", "DP216", "DP309", "DP311",
              "DP317"))  # fmt: skip
def replica_raised(evidence: Evidence) -> Iterator[Found]:
    """Forward fails in a replica and not on one GPU, for a reason that no other rule knows.

    What happens: an exception with `Caught ... in replica i on device d`.
    Why: a replica is not quite the model: it sees a chunk, on another GPU, from another thread.
    Before: assert len(x) == 32
    After: assert len(x) <= 32
    Seen by: an exception in a replica.
    References: torch/nn/parallel/parallel_apply.py
    """
    of_hooks = keys_read_in_vain(evidence)  # that is DP310
    if failed_through(evidence):
        return  # that is DP304
    for probe, error in failures(evidence):
        if error.place in of_hooks:
            continue
        is_known = comes_of_no_parameters(error, probe.call) or re.search(_KNOWN, error.message)
        if error.stage == "replica" and error.replica is not None and not is_known and not reads_state(error):
            what = f"replica {error.replica} raises {error}"
            own = batch_kept(evidence) if has_a_lone_row(probe) else None
            repair = own or repair_of(_raised_repair(error, probe, evidence))
            yield Found(str(error.place), what, error.place, probe, repair=repair)


def _raised_repair(error: Raised, probe: Probe, evidence: Evidence) -> tuple[Change, ...]:
    """Write the line that raised, or one that it rests on, without what only the whole batch has."""
    code = error.place.code if error.place else ""
    rows = max(probe.split.sizes(), default=0) if probe.split else 0
    if error.place is None or not code:
        return ()
    after = "" if code.startswith("assert") else for_any_rows(code, probe, evidence, error.place.file)
    if after:
        return (Change(error.place, code, after),)
    for own in lines_leading_to(error.place):
        after = for_any_rows(own.before, probe, evidence, error.place.file)
        if after:
            return (Change(own.place, own.before, after),)
    if cut := _as_many_rows(error.place, probe, evidence):
        return (cut.as_change(),)
    of_rows = f", of which a chunk has {rows}" if rows else ""
    told = f"...   # no line can be told: the same for any number of rows{of_rows}"
    return (Change(error.place, code, told),)


def _as_many_rows(place: Place, probe: Probe, evidence: Evidence) -> Repair | None:
    """Write a line that uses a buffer with the rows of a whole batch, and one with as many as there are."""
    function = function_at(place)
    seen = entered_at(function, evidence)
    given = [one for one in seen.tensors if one in function.arguments()] if function and seen else []
    rows = probe.call.rows if probe.call else 0
    made = {path.rpartition(".")[2] for path, number in evidence.scan.buffers if number == rows > 1}
    for statement in function.statements() if function and given else ():
        parts = [
            (one, f"{ast.unparse(one)}[:{given[0]}.size(0)]")
            for one in ast.walk(statement)
            if isinstance(one, ast.Attribute) and one.attr in made and isinstance(one.ctx, ast.Load)
        ]
        if function and parts and statement.lineno <= place.line <= (statement.end_lineno or 0):
            return function.own(statement, *parts)
    return None


@rule("DP391", "two-devices", "error",
      unless=("DP106", "DP208", "DP302", "DP303", "DP304", "DP309", "DP602"))  # fmt: skip
def two_devices(evidence: Evidence) -> Iterator[Found]:
    """A replica mixes tensors of two GPUs, for a reason that no other rule knows.

    What happens: `Expected all tensors to be on the same device, but found at least two devices`.
    Why: something leads from the replica back to the original, or to one fixed GPU.
    Before: y = x + GLOBAL_TENSOR
    After: y = x + GLOBAL_TENSOR.to(x.device)
    Seen by: this exception in a replica.
    References: pytorch/pytorch#101402
    """
    for probe, error in crossed_devices(evidence):
        code = error.place.code if error.place else ""
        changes = moved_to_the_replica(error, probe.call, evidence)
        if not changes and error.place is not None and code:
            told = "...   # no line can be told: each tensor that is no input .to(x.device), where it is used"
            changes = (Change(error.place, code, told),)
        what = f"replica {error.replica}: {error}"
        yield Found(str(error.place), what, probe=probe, place=error.place, repair=repair_of(changes))


@rule("DP392", "backward-raised", "error")
def backward_raised(evidence: Evidence) -> Iterator[Found]:
    """Backward fails under DataParallel and not on one GPU.

    What happens: forward runs, and `loss.backward()` raises; mixed devices, as a rule.
    Why: what backward reads is shared by all replicas, and the last one to write it wins.
    Before: Scale.saved = x                # in the forward of an autograd.Function
    After: ctx.save_for_backward(x)       # and in backward: x, = ctx.saved_tensors
    Seen by: an exception of backward under DataParallel, where that of one GPU has none.
    References: torch/autograd/function.py
    """
    for probe in evidence.probes:
        error = probe.comparison.backward_raised
        if error is None or _AGAIN in error.message:
            continue
        code = error.place.code if error.place else ""
        changes = kept_on_the_context(error.place)
        if not changes and error.place is not None and code:
            told = "...   # no line can be told: of what forward left behind, its replica's own"
            changes = (Change(error.place, code, told),)
        what = f"backward raises {error}, and not on one GPU"
        yield Found(str(error.place), what, probe=probe, place=error.place, repair=repair_of(changes))
