"""BatchNorm's statistics, taken a chunk at a time: DP306, DP307."""

import ast
from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence, Probe
from dpdemo.checking.looking import STATISTICS, forward_place
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.rewriting.norms import groups_of, with_group_norms
from dpdemo.checking.source import tree_of
from dpdemo.checking.statechanges import changes_of
from dpdemo.reports.check import Place


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
    kinds = dict(evidence.scan.module_types)
    for probe, change in changes_of(evidence, "buffer"):
        path, _, name = change.path.rpartition(".")
        if name in STATISTICS and not change.same and kinds.get(path) != "SyncBatchNorm":
            first = (
                f"`{path}` and others"
                if _count(evidence, "BatchNorm") > 1
                else f"`{path or change.module_type}`"
            )
            yield Found(
                "BatchNorm",
                f"{first}: statistics are taken over chunks of {_largest(probe)} instead of "
                f"{probe.batch_size} samples, "
                "and the running ones are those of chunk 0",
                _place_of(norm := _norm_of(evidence, path), evidence),
                probe,
                before=norm[0],
                after=norm[1],
                repair=with_group_norms(evidence),
            )


def _norm_of(evidence: Evidence, path: str) -> tuple[str, str]:
    """Write a normalising layer as it stands in the model, and one of its size that knows no batch."""
    for found, name, channels in evidence.scan.norms:
        if found == path:
            return f"nn.{name}({channels})", f"nn.GroupNorm({groups_of(channels)}, {channels})"
    return "", ""


def _place_of(norm: tuple[str, str], evidence: Evidence) -> Place | None:
    """Find the first line, in the file of forward, that makes such a layer."""
    forward = forward_place(evidence)
    for node in ast.walk(tree_of(forward.file)) if forward else ():
        if isinstance(node, ast.Call) and ast.unparse(node) == norm[0]:
            assert forward is not None  # noqa: S101 - its file was read
            return Place(forward.file, node.lineno, "", norm[0])
    return None


def _count(evidence: Evidence, kind: str) -> int:
    return sum(name == kind for _, name in evidence.scan.module_types)


def _largest(probe: Probe) -> int:
    return probe.split.largest if probe.split else probe.batch_size


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
    for path, kind in evidence.scan.module_types:
        if kind == "SyncBatchNorm":
            before, after = _norm_of(evidence, path)
            what = f"`{path}` is a SyncBatchNorm: here it works as plain BatchNorm"
            yield Found(
                "SyncBatchNorm", what, _place_of((before, after), evidence), None, None, before, after
            )
