"""BatchNorm's statistics, taken a chunk at a time: DP306, DP307."""

from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence, Norm
from dpdemo.checking.questions.results import is_off
from dpdemo.checking.questions.state import STATISTICS, changes_of, synchronised
from dpdemo.checking.questions.words import article, listed
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import Advice, Found, advise


@rule("DP306", "batchnorm-statistics", "warning")
def batchnorm_statistics(evidence: Evidence) -> Iterator[Found]:
    """BatchNorm takes its statistics a chunk at a time, and keeps those of chunk 0.

    What happens: in training each replica normalises with the mean of its own chunk, and the running
        statistics follow
        GPU 0's chunk. Results differ from one GPU's, the more so the smaller the chunks.
    Why: replicas do not talk to each other, and only replica 0 holds the model's own buffers.
    Before: nn.BatchNorm2d(64)
    After: nn.GroupNorm(8, 64)   # or a larger batch, or DistributedDataParallel with SyncBatchNorm
    Seen by: running statistics that differ from those of a run on one GPU.
    References: pytorch/pytorch#1051, pytorch/pytorch#2584, pytorch/pytorch#24391
    """
    yield from _clamped(evidence)
    kinds = dict(evidence.scan.module_types)
    norms = {norm.path: norm for norm in evidence.scan.norms}
    for probe, change in changes_of(evidence, "buffer"):
        path = change.path.rpartition(".")[0]
        norm = norms.get(path)
        if norm is not None and norm.is_own and not change.like_first_chunk:
            continue  # one that synchronises its replicas
        if change.name in STATISTICS and not change.same and kinds.get(path) != "SyncBatchNorm":
            are_several = sum(kind == "BatchNorm" for kind in kinds.values()) > 1
            first = f"`{path}` and others" if are_several else f"`{path or change.module_type}`"
            largest = probe.split.largest if probe.split else probe.batch_size
            what = (
                f"{first}: statistics are taken over chunks of {largest} instead of {probe.batch_size} "
                "samples, and the running ones are those of chunk 0"
            )
            advice = _group_norm(norm)
            if norm is not None and norm.is_told:
                kind = article(norm.type)
                what += f"; {kind} synchronises replicas that were told of each other, and these were not"
                advice = advise("told of each other")
            yield Found("BatchNorm", what, norm.place if norm else None, probe, advice=advice)


def _clamped(evidence: Evidence) -> Iterator[Found]:
    """Report norms with whole-batch statistics where results still differ from one GPU's."""
    for probe in evidence.probes:
        norms = synchronised(evidence, probe)
        if norms and is_off(probe):
            names, verb = listed([norm.path for norm in norms]), "take" if len(norms) > 1 else "takes"
            gap = probe.comparison.largest_difference
            differing = f"results differ by up to {gap:.2g}" if gap else "gradients differ"
            what = (
                f"{names} {verb} statistics over the whole batch, and {differing} from one GPU's: for "
                "several replicas the variance is clamped to eps, where a plain call adds eps to it"
            )
            yield Found("clamp", what, norms[0].place, probe, "info")


def _group_norm(norm: Norm | None) -> Advice:
    """Advise a normalisation of each sample, with about eight channels in a group or more."""
    if norm is None:
        return Advice()
    groups = next(
        number
        for number in (8, 4, 2, 1)
        if (norm.channels % number == 0 and norm.channels > number) or number == 1
    )
    return advise("group norm", type=norm.type, channels=f"{norm.channels}", groups=f"{groups}")


@rule("DP307", "sync-batchnorm", "warning")
def sync_batchnorm(evidence: Evidence) -> Iterator[Found]:
    """SyncBatchNorm synchronises nothing under DataParallel.

    What happens: it works as plain BatchNorm, without a word: each replica normalises with its own chunk.
    Why: it synchronises only between processes of torch.distributed, and DataParallel is one process.
    Before: nn.DataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model))
    After: DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model))
    Seen by: a SyncBatchNorm in the model.
    References: PatrickHua/SimSiam#24
    """
    norms = {norm.path: norm for norm in evidence.scan.norms}
    for path, kind in evidence.scan.module_types:
        if kind == "SyncBatchNorm":
            what = f"`{path}` is a SyncBatchNorm: here it works as plain BatchNorm"
            norm = norms.get(path)
            yield Found("SyncBatchNorm", what, norm.place if norm else None, advice=_group_norm(norm))
