"""Memory that DataParallel needs on each GPU: DP701."""

from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import Found

_MIB = 2**20


@rule("DP701", "memory-imbalance", "info")
def memory_imbalance(evidence: Evidence) -> Iterator[Found]:
    """GPU 0 needs much more memory than the others.

    What happens: `CUDA out of memory` on GPU 0 while the others are half empty.
    Why: it holds the model, its gradients, the whole batch and the gathered results; the optimizer's state
        and the gradients' sum come on top.
    Before: loss = criterion(dp(x), y)   # results of the whole batch on GPU 0
    After: nn.DataParallel(ModelWithLoss(model, criterion), output_device=1)   # each replica returns its loss
    Seen by: bytes held on each virtual GPU in a forward: twice as many, and a MiB more, on GPU 0.
    References: huggingface/transformers#279, pytorch/pytorch#1893
    """
    for probe in evidence.probes:
        peaks = probe.peak_bytes[: len(probe.call.replicas)] if probe.call else ()  # the others have no chunk
        if len(peaks) > 1 and peaks[0] > 2 * max(peaks[1:]) and peaks[0] - max(peaks[1:]) > _MIB:
            yield Found(
                "memory",
                f"GPU 0 holds up to {peaks[0] / _MIB:.0f} MiB in a forward, the others "
                f"{max(peaks[1:]) / _MIB:.0f} MiB",
                None,
                probe,
            )
            return
