"""Errors of a replica, forward or backward, that no other rule explains: DP390, DP391."""

from collections.abc import Iterator

from dpdemo.checking.errors import is_of_devices
from dpdemo.checking.evidence import Evidence
from dpdemo.checking.questions.failures import crossed_devices, failures
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import TO_ITS_DEVICE, Hit, advise, of_any_rows

_AGAIN = "backward through the graph a second time"
"""An error of something that both runs of a check share, such as a cached tensor."""


@rule("DP390", "replica-raised", "error", symptoms=("raises",))
def replica_raised(evidence: Evidence) -> Iterator[Hit]:
    """A replica fails, forward or backward, and one GPU does not, for a reason that no other rule knows.

    What happens: an exception with `Caught ... in replica i on device d`; or `loss.backward()` raises, where
        replicas have written over what it reads; or a replica cannot be made, since `cls.__new__(cls)` is
        called without arguments.
    Why: a replica is not quite the model: it sees a chunk, on another GPU, from another thread.
    Before: assert len(x) == 32
    After: assert len(x) <= 32
    Seen by: an exception in a replica, while replicas are made, or in backward.
    References: torch/nn/parallel/parallel_apply.py, torch/nn/modules/module.py
    """
    for probe, error in failures(evidence):
        if error.stage == "replicate" and "__new__" in error.message:
            what = f"a replica cannot be made: {error.message}"
            advice = advise("def __new__(cls, *args, **kwargs): ...", before="def __new__(cls, config): ...")
            yield Hit(error.message, what, None, probe, advice=advice)
        if error.stage != "replica" or error.replica is None:
            continue
        if not is_of_devices(error.message):
            what, place = f"replica {error.replica} raises {error}", error.place
            rows, about = of_any_rows(place, probe), (error.symptom,)
            yield Hit(str(place), what, place, probe, advice=rows, symptoms=about)
    for probe in evidence.probes:
        backward = probe.comparison.backward_raised
        if backward is not None and _AGAIN not in backward.message:
            what = f"backward raises {backward}, and not on one GPU"
            saved = "ctx.save_for_backward({x})   # and in backward: ({x},) = ctx.saved_tensors"
            yield Hit(str(backward.place), what, backward.place, probe, advice=advise(saved))


@rule("DP391", "two-devices", "error", symptoms=("devices",))
def two_devices(evidence: Evidence) -> Iterator[Hit]:
    """A replica mixes tensors of two GPUs, for a reason that no other rule knows.

    What happens: `Expected all tensors to be on the same device, but found at least two devices`.
    Why: something leads from the replica back to the original, or to one fixed GPU.
    Before: y = x + GLOBAL_TENSOR
    After: y = x + GLOBAL_TENSOR.to(x.device)
    Seen by: this exception in a replica.
    References: pytorch/pytorch#101402
    """
    for probe, error in crossed_devices(evidence):
        what = f"replica {error.replica}: {error}"
        yield Hit(str(error.place), what, error.place, probe, advice=TO_ITS_DEVICE)
