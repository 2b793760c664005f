"""Losses and other results over the whole batch: DP501, DP502, DP590."""

from collections.abc import Iterator

from dpdemo.preflight.evidence import Comparison, Evidence, Probe
from dpdemo.preflight.looking import delivered_rows, forward_place, sizes_text
from dpdemo.preflight.registry import Found, rule


@rule("DP501", "loss-scale", "error")
def loss_scale(evidence: Evidence) -> Iterator[Found]:
    """A loss taken inside forward is taken once for each GPU.

    What happens: the loss comes back as a vector, one number for each GPU. Its sum gives gradients n times
        those of one
        GPU; its mean gives the right ones only where all chunks are equal, and samples of a short chunk
        weigh more.
    Why: each replica averages over its own chunk, and gather puts the averages side by side.
    Before: loss = model(x, y).sum()            # forward returns F.cross_entropy(...)
    After: loss = F.cross_entropy(model(x), y)  # or forward returns reduction="none", and .mean() outside
    Seen by: the parameters' gradients of .sum() and of .mean() against those of one GPU.
    References: pytorch/pytorch#5778, huggingface/transformers#608
    """
    for probe in evidence.probes:
        found = _scale(probe)
        if found:
            yield Found("loss", found, forward_place(evidence), probe)


def _scale(probe: Probe) -> str:
    comparison = probe.comparison
    sizes = list(probe.split.sizes()) if probe.split else []
    chunks = f"chunks of {sizes_text(sizes)}"
    if comparison.loss_not_finite and comparison.single_finite:
        return f"the loss is NaN in a replica, and finite on one GPU: {chunks}"
    if comparison.sum_factor is None or len(sizes) < 2:
        return ""
    by_sum, by_mean = comparison.sum_factor, comparison.mean_factor
    if by_mean is None:  # not in proportion
        return (
            f"gradients of loss.sum() are some {by_sum:.2f} times those of one GPU at batch "
            f"{probe.batch_size}, and samples of a short chunk weigh more, in loss.mean() too: {chunks}"
        )
    if abs(by_sum - 1) < 1e-3:
        return ""
    if abs(by_mean - 1) < 1e-3:
        return (
            f"gradients of loss.sum() are {by_sum:.2f} times those of one GPU at batch {probe.batch_size}; "
            f"loss.mean() gives them right here, and not where chunks are uneven"
        )
    return (
        f"gradients of loss.sum() are {by_sum:.2f} times, of loss.mean() {by_mean:.2f} times those of one GPU"
    )


@rule("DP502", "cross-sample", "error", unless=("DP201", "DP205"))
def cross_sample(evidence: Evidence) -> Iterator[Found]:
    """Forward mixes samples of a batch, and under DataParallel sees a chunk only.

    What happens: batch means, contrastive losses, in-batch negatives, shuffles: each replica uses its own
        chunk, and the numbers differ from those of one GPU without a word.
    Why: a replica never sees the other chunks.
    Before: return h - h.mean(0)
    After: h = model(x); h = h - h.mean(0)   # outside, on the gathered batch
    Seen by: in eval mode results differ from one GPU's, and equal those of the chunks run one by one.
    References: HobbitLong/SupContrast#36, pytorch/pytorch#21810
    """
    has_batchnorm = any("BatchNorm" in kind for _, kind in evidence.scan.module_types)
    for probe in evidence.probes:
        comparison = probe.comparison
        if (
            comparison.values_equal is not False
            or not comparison.equals_chunkwise
            or comparison.blamed_argument
        ):
            continue
        if (probe.mode == "train" and has_batchnorm) or (
            probe.call and delivered_rows(probe.call) < probe.call.rows
        ):
            continue
        yield Found(
            comparison.differing or "result",
            f"{_result(comparison.differing)} of a sample depends on the others of its batch: it differs "
            "from one "
            f"GPU's by up to {comparison.largest_difference:.2g}, and is that of the chunk alone",
            forward_place(evidence),
            probe,
        )


def _result(path: str | None) -> str:
    return f"the result `{path}`" if path else "the result"


def _has_another_shape(comparison: Comparison) -> bool:
    return comparison.differing is not None and comparison.sum_factor is None  # else DP501 tells of it


# all that come before, but for what changes no shape of a result and leaves it that of its chunk: idle GPUs,
# BatchNorm, hooks, where an RNN's weights lie, random numbers
_EXPLANATIONS = (
    *("DP1", "DP20", "DP210", "DP211", "DP212", "DP214"),
    *("DP301", "DP302", "DP303", "DP304", "DP305", "DP308", "DP309", "DP311", "DP312", "DP313", "DP314"),
    *("DP39", "DP4", "DP5", "DP601", "DP602"),
)


@rule("DP590", "unexplained-difference", "error", unless=_EXPLANATIONS)
def unexplained_difference(evidence: Evidence) -> Iterator[Found]:
    """Results or gradients differ from one GPU's, for a reason that no other rule knows.

    What happens: numbers, shapes or gradients are not those of one GPU, in eval mode and without random
        numbers.
    Why: unknown; a global variable that replicas share is a candidate.
    Before: COUNTS.append(1); return y * len(COUNTS)
    After: return y
    Seen by: results and gradients against those of one GPU.
    References: pytorch/pytorch#5778
    """
    for probe in evidence.probes:
        comparison = probe.comparison
        if probe.raised is not None or probe.single.used_random:
            continue
        if comparison.values_equal is False and not comparison.equals_chunkwise:
            gap = comparison.largest_difference
            what = f"{_result(comparison.differing)} differs from one GPU's by up to {gap:.2g}"
            yield Found("values", what, forward_place(evidence), probe)
        elif comparison.values_equal is True and comparison.gradients_equal is False:
            yield Found("gradients", "gradients differ from one GPU's, results do not", None, probe)
        elif comparison.values_equal is None and _has_another_shape(comparison):
            what = f"{_result(comparison.differing)} has another shape than on one GPU"
            yield Found("shape", what, forward_place(evidence), probe)
