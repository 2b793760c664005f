"""What a replica raises for a reason that no other rule knows, forward or backward: DP390 to DP392."""

import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence, Probe, Raised
from dpdemo.checking.looking import crossed_devices, failures, for_any_rows, reads_state
from dpdemo.checking.registry import Found, rule

_KNOWN = (
    "same device|has no attribute|missing \\d+ required|Expected hidden|more than 1 "
    "(value|spatial)|deepcopy protocol|"
    "cannot be empty|requires_grad flags of leaf|"
    "requires non-empty inputs|Broadcast(Backward)? is a view and|"
    "batch_sizes should always|hx should|1D CPU int64"
)
_AGAIN = "backward through the graph a second time"
"""What the two runs of a check share, such as a cached tensor, would raise again on one GPU too."""


@rule("DP390", "replica-raised", "error",
      unless=("DP106", "DP201", "DP205", "DP207", "DP212", "DP214", "DP216", "DP309", "DP311",
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
    for probe, error in failures(evidence):
        is_known = error.type == "StopIteration" or re.search(_KNOWN, error.message)
        if error.stage == "replica" and error.replica is not None and not is_known and not reads_state(error):
            before, after = _raised_repair(error, probe, evidence)
            what = f"replica {error.replica} raises {error}"
            yield Found(str(error.place), what, error.place, probe, None, before, after)


def _raised_repair(error: Raised, probe: Probe, evidence: Evidence) -> tuple[str, str]:
    """Write the line that raised, and what it must do without: the whole batch."""
    code = error.place.code if error.place else ""
    rows = max(probe.split.sizes(), default=0) if probe.split else 0
    if not code or not rows:
        return "", ""
    after = "" if code.startswith("assert") else for_any_rows(code, probe, evidence)
    if after:
        return code, after
    return code, f"...   # the same for any number of rows: a chunk has {rows} of {probe.batch_size}"


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
        after = "...   # each tensor that is no input: .to(x.device) where it is used" if code else ""
        yield Found(
            str(error.place), f"replica {error.replica}: {error}", error.place, probe, None, code, after
        )


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
        after = "...   # of what forward left on `ctx` or in its graph, its replica's own" if code else ""
        what = f"backward raises {error}, and not on one GPU"
        yield Found(str(error.place), what, error.place, probe, None, code, after)
