"""The lines and words of DistributedDataParallel: ranks by node, and samples drawn twice or never."""

from collections import Counter
from collections.abc import Sequence

from dpdemo.config.ranks import distribute_epoch
from dpdemo.results.batches import Replica
from dpdemo.results.devices import ordinal_of
from dpdemo.results.distribution import Distribution, Indices, RankPlace
from dpdemo.results.splitdata import SplitData
from dpdemo.results.table import Fact
from dpdemo.wording import counted

MANY = 16
"""With more ranks than this, those of a node share a line; with more nodes than this, nodes do."""
_LISTED = 3


def share_line(distribution: Distribution, ranks: Sequence[Replica]) -> bool:
    """Return whether equal neighbours share a line: few ranks have one each, of more each node has."""
    if distribution.world_size <= MANY:
        return False
    return distribution.nodes > MANY or ranks[0].node == ranks[-1].node


def ranks_label(distribution: Distribution, run: Sequence[Replica]) -> str:
    """Name the ranks of a line, and where they run."""
    first, last = run[0], run[-1]
    ranks = f"rank {first.rank}" if first.rank == last.rank else f"ranks {first.rank}–{last.rank}"
    if first.node != last.node:
        return f"{ranks}: nodes {first.node}–{last.node}"
    node = f"node {first.node}, " if distribution.nodes > 1 else ""
    stop = f"–{ordinal_of(last.device)}" if last.device != first.device else ""
    return f"{ranks}: {node}{first.device}{stop}"


def place_of(report: SplitData, rank: int) -> RankPlace:
    """Return where a rank of a report runs."""
    found = report.batches[0].in_model[rank]
    return RankPlace(rank, found.node or 0, found.local_rank or 0, found.device)


def over(report: SplitData, distribution: Distribution) -> str:
    """Name the ranks: `over 32 ranks on 4 nodes of 8 GPUs`."""
    number = distribution.world_size
    ranks = counted(number, "rank")
    ranks_of = report.batches[0].in_model if report.batches else ()
    per_node = set(Counter(rank.node for rank in ranks_of).values())
    gpu = "virtual GPU" if report.virtual else "GPU"
    if distribution.nodes == 1:
        where = "the CPU" if report.devices.kind == "cpu" else counted(number, gpu)
    else:
        kind = "process" if report.devices.kind == "cpu" else gpu
        each = f" of {counted(min(per_node), kind)}" if len(per_node) == 1 else ""
        where = f"{distribution.nodes} nodes{each}"
    return f"over {ranks} on {where}"


def setting(report: SplitData, distribution: Distribution) -> list[str]:
    """Describe a batch, and samples that the ranks do not divide."""
    config = report.config
    if config.batch_size_is == "global":
        batch = f"{config.batch_size} over all ranks ({distribution.batch_size} per rank)"
    else:
        batch = f"{config.batch_size} per rank ({distribution.global_batch_size} over all ranks)"
    parts = [f"batch size {batch}", f"data size {config.data_size}"]
    if config.shuffle:
        parts.append("shuffled")
    if config.sampler_drop_last:
        parts.append("sampler drops the tail")
    return parts


def num_batches(report: SplitData, distribution: Distribution) -> int:
    """Count the batches of each rank in a whole epoch."""
    return distribute_epoch(report.config, distribution.world_size).num_batches


def facts(report: SplitData, distribution: Distribution) -> list[Fact]:
    """Sum up the epoch: name, number and what it means."""
    return [
        ("Batches", str(report.totals.batches), "per rank: as many optimizer steps"),
        (
            "Global batch",
            str(distribution.global_batch_size),
            f"samples per step: {distribution.world_size} × {distribution.batch_size}",
        ),
        ("Samples", str(distribution.drawn), _drawn(report, distribution)),
        (
            "Repeated",
            str(distribution.num_repeated),
            _which(distribution.num_repeated, distribution.repeated),
        ),
        ("Dropped", str(distribution.num_dropped), _which(distribution.num_dropped, distribution.dropped)),
    ]


def _drawn(report: SplitData, distribution: Distribution) -> str:
    size = report.config.data_size
    if report.partial:
        return f"of {size} drawn so far"
    if not distribution.num_repeated and not distribution.num_dropped:
        return "drawn: each sample once"
    return f"drawn from {size}"


def _which(number: int, indices: Indices | None) -> str:
    if not number:
        return ""
    if indices is None:
        return "which ones, the shuffle decides"
    listed = [str(span[0]) if len(span) == 1 else f"{span[0]}–{span[-1]}" for span in indices[:_LISTED]]
    more = ", ..." if len(indices) > _LISTED else ""
    return f"sample{'s' * (sum(map(len, indices)) > 1)} {', '.join(listed)}{more}"


def warnings(report: SplitData, distribution: Distribution) -> list[str]:
    """Warn if some ranks have nothing of their own."""
    size, ranks = report.config.data_size, distribution.world_size
    if size < ranks:
        return [f"more ranks ({ranks}) than samples ({size}): some ranks repeat what others do"]
    return []


def tip(report: SplitData, distribution: Distribution) -> str:
    """Suggest a setting that repeats no sample."""
    size, ranks = report.config.data_size, distribution.world_size
    if not distribution.num_repeated or report.config.sampler_drop_last or size < ranks:
        return ""
    left = counted(size % ranks, "sample")
    return f"--set sampler_drop_last=true leaves out {left} instead of repeating any"
