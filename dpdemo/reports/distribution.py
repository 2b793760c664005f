"""What a report says of DistributedDataParallel alone: nodes and ranks, and samples drawn twice or never."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, InstanceOf, PlainSerializer

from dpdemo.reports.base import computed
from dpdemo.reports.devices import Devices

_Spans = list[tuple[int, int]]
Indices = Annotated[
    tuple[InstanceOf[range], ...],
    PlainSerializer(lambda spans: [(span[0], span[-1]) for span in spans], return_type=_Spans),
]
"""Numbers of samples, in order, neighbouring ones as one range; in JSON the first and last of each."""


@dataclass(frozen=True, slots=True)
class NodeRun:
    """`count` neighbouring nodes, from number `first` on, each with one rank on each of the same `devices`.

    `first_rank` is the rank of the first node's local rank 0.
    """

    first: int
    count: int
    first_rank: int
    devices: Devices

    @property
    def num_ranks(self) -> int:
        """Ranks on all these nodes."""
        return self.count * len(self.devices)


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where one rank runs, in torchrun's terms."""

    rank: int
    node: int
    local_rank: int
    device: str

    def __str__(self) -> str:
        return f"rank {self.rank} (node {self.node}, local rank {self.local_rank}, {self.device})"


def _count(nodes: tuple[NodeRun, ...]) -> int:
    return sum(run.count for run in nodes)


@dataclass(frozen=True, slots=True)
class Distribution:
    """How DistributedSampler dealt the epoch out to the ranks.

    `batch_size` is a rank's, the largest where they differ, and `global_batch_size` what one optimizer step
    sees; `drawn` counts the samples that went through the model, of which
    `num_repeated` had been drawn before; `num_dropped` never were. Which ones they are is None where the
    order is shuffled. JSON has the number of nodes, and spans of samples by their first and last.
    """

    nodes: Annotated[tuple[NodeRun, ...], PlainSerializer(_count, return_type=int)]
    batch_size: Annotated[int, Field(serialization_alias="batch_size_per_rank")]
    global_batch_size: int
    drawn: int
    num_repeated: int
    num_dropped: int
    repeated: Indices | None
    dropped: Indices | None

    @computed
    def world_size(self) -> int:
        """Ranks in all."""
        return sum(run.num_ranks for run in self.nodes)

    @property
    def num_nodes(self) -> int:
        """Machines in all."""
        return _count(self.nodes)

    def place(self, rank: int) -> RankPlace:
        """Say where a rank runs.

        Raises:
            IndexError: if there is no such rank.

        """
        for run in self.nodes:
            if 0 <= rank - run.first_rank < run.num_ranks:
                node, local_rank = divmod(rank - run.first_rank, len(run.devices))
                return RankPlace(rank, run.first + node, local_rank, run.devices.name(local_rank))
        raise IndexError(f"expected a rank below {self.world_size}, got {rank}")
