"""The part of a report for DistributedDataParallel alone: ranks, and samples drawn twice or never."""

from dataclasses import dataclass, field

from dpdemo.results.formats import in_json

Indices = tuple[range, ...]
"""Numbers of samples, in order, neighbouring ones as one range; in JSON the first and last of each."""


@dataclass(frozen=True, slots=True)
class RankPlace:
    """The place of one rank, in torchrun's terms."""

    rank: int
    node: int
    local_rank: int
    device: str

    def __str__(self) -> str:
        return f"rank {self.rank} (node {self.node}, local rank {self.local_rank}, {self.device})"


def _plain_spans(spans: Indices | None) -> list[list[int]] | None:
    return None if spans is None else [[span[0], span[-1]] for span in spans]


@dataclass(frozen=True, slots=True)
class Distribution:
    """The samples that DistributedSampler gave the ranks.

    `batch_size` is a rank's, the largest where they differ, and `global_batch_size` what one optimizer step
    sees; `drawn` counts the samples that went through the model, of which
    `num_repeated` had been drawn before; `num_dropped` never were. Which ones they are is None where the
    order is shuffled. JSON has spans of samples by their first and last.
    """

    nodes: int
    batch_size: int = field(metadata=in_json("batch_size_per_rank"))
    global_batch_size: int
    drawn: int
    num_repeated: int
    num_dropped: int
    repeated: Indices | None = field(metadata=in_json(form=_plain_spans))
    dropped: Indices | None = field(metadata=in_json(form=_plain_spans))
    world_size: int
