"""The time of a step over several GPUs, from that of one: the model of docs/speed-up.md.

Each step is computed three times: all ranges near their fast ends, in the middle, and near their slow ends.
Near is a tenth of the range, so that four fifths of each lie between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from dpdemo.results.speedupdata import Link, PartName, PhaseName, Rate, Timeline, Workload
from dpdemo.timing.costs import (
    BUCKET_BYTES,
    BUCKET_MS,
    COPY_MS,
    DDP_BUCKET_BYTES,
    DDP_SHARE,
    FORWARD_SHARE,
    HOST_GB_S,
    OPERATOR_MS,
    REPLICA_MS,
    Cost,
)

_BYTES_A_MS = 1e6  # of one GB/s
_HOST = Rate(low=HOST_GB_S.low, high=HOST_GB_S.high)


@dataclass(frozen=True)
class Case:
    """A place in every range: 0 is the fast end, 1 the slow one."""

    place: float

    def cost(self, cost: Cost) -> float:
        """Return what something costs in this case."""
        return cost.low + self.place * (cost.high - cost.low)

    def link_ms(self, num_bytes: float, rate: Rate) -> float:
        """Return how long a link takes for these bytes: the middle is that of the times, not of the rates."""
        fast, slow = num_bytes / rate.high, num_bytes / rate.low
        return (fast + self.place * (slow - fast)) / _BYTES_A_MS


FAST, MIDDLE, SLOW = Case(0.1), Case(0.5), Case(0.9)
CASES = (FAST, MIDDLE, SLOW)

Moved = tuple[PhaseName, int, float]
"""A phase, what it copies between GPUs, and how long the link takes."""


@dataclass(frozen=True)
class _Step:
    """A step over GPUs; `shares` has the rows of each as parts of one GPU's batch."""

    workload: Workload
    link: Link
    shares: Sequence[float]
    order: ClassVar[tuple[PartName, ...]]

    @property
    def num_used(self) -> int:
        """The number of GPUs with rows."""
        return len(self.shares)

    def added(self, one_gpu_ms: float | None, case: Case) -> dict[PartName, float]:
        """Return what several GPUs take beside the computation; without a measured step only the copies."""
        raise NotImplementedError

    def extra_ms(self, one_gpu_ms: float, case: Case) -> float:
        """Return how much longer a step is than that of one GPU with the rows of the fullest."""
        return sum(self.added(one_gpu_ms, case).values())

    def timeline(self, one_gpu_ms: float | None) -> Timeline:
        """List the parts of a step in the middle case; without a measured step only its copies."""
        parts = self.added(one_gpu_ms, MIDDLE)
        if one_gpu_ms is not None:
            parts["forward"] = FORWARD_SHARE * one_gpu_ms
            parts["backward"] = parts.get("backward", 0.0) + (1 - FORWARD_SHARE) * one_gpu_ms
        return tuple((name, parts[name]) for name in self.order if parts.get(name))


class DataParallelStep(_Step):
    """A step of DataParallel."""

    order = (
        *("load", "scatter", "replicate", "forward", "launching", "gather"),
        *("output gradients", "backward", "reduce", "input gradients"),
    )

    def phases(self, case: Case) -> Iterator[Moved]:
        """List what is copied, in the order of a step."""
        if self.num_used < 2:
            return
        work, others = self.workload, self.num_used - 1
        elsewhere = sum(self.shares[1:])
        beyond_one = work.input_bytes * max(0.0, sum(self.shares) - 1)
        yield "load", round(beyond_one), case.link_ms(beyond_one, _HOST)
        yield self._copied("scatter", work.input_bytes * elsewhere, case)
        yield self._coalesced("replicate", work.parameter_bytes + work.buffer_bytes, others, case)
        yield self._copied("gather", work.output_bytes * elsewhere, case)
        if work.output_gradient_bytes:
            yield self._copied("output gradients", work.output_gradient_bytes * elsewhere, case)
        yield self._coalesced("reduce", work.gradient_bytes, others, case)
        if work.input_gradient_bytes:
            yield self._copied("input gradients", work.input_gradient_bytes * elsewhere, case)

    def _copied(self, name: PhaseName, num_bytes: float, case: Case) -> Moved:
        begun = (self.num_used - 1) * case.cost(COPY_MS) if num_bytes else 0.0
        return name, round(num_bytes), case.link_ms(num_bytes, self.link.copy_rate) + begun

    def _coalesced(self, name: PhaseName, num_bytes: int, others: int, case: Case) -> Moved:
        """Broadcast or reduce in buckets: NCCL hands each on from GPU to GPU, or they share one link."""
        is_serial = case is SLOW or (case is MIDDLE and self.link.is_shared)
        through = num_bytes * (others if is_serial else 1)
        begun = ceil(num_bytes / BUCKET_BYTES) * case.cost(BUCKET_MS)
        return name, num_bytes * others, case.link_ms(through, self.link.copy_rate) + begun

    def replicate_ms(self, case: Case) -> float:
        """Return what Python needs to copy the modules of all replicas, while the broadcast runs."""
        launches = self.workload.launches
        if launches is None or self.num_used < 2:
            return 0.0
        return self.num_used * (launches.modules + launches.tensors) * case.cost(REPLICA_MS)

    def lock_ms(self, case: Case) -> float:
        """Return how long one process needs to launch the forward of all replicas, a thread at a time."""
        launches = self.workload.launches
        return 0.0 if launches is None else self.num_used * launches.forward * case.cost(OPERATOR_MS)

    def added(self, one_gpu_ms: float | None, case: Case) -> dict[PartName, float]:
        """Return the copies, and what launching takes longer than the forward that it runs ahead of.

        Python copies the modules while the broadcast runs, so that the longer of the two counts.
        """
        parts: dict[PartName, float] = {name: ms for name, _, ms in self.phases(case)}
        if parts:
            parts["replicate"] = max(parts["replicate"], self.replicate_ms(case))
        if parts and one_gpu_ms is not None:
            launching = self.lock_ms(case)
            hidden = max(FORWARD_SHARE * one_gpu_ms, launching / self.num_used)
            parts["launching"] = max(0.0, launching - hidden)
        return parts


class DdpStep(_Step):
    """A step of DistributedDataParallel: a process for each GPU, gradients averaged in a ring."""

    order = ("buffers", "forward", "backward", "all-reduce")

    def phases(self, case: Case) -> Iterator[Moved]:
        """List what is copied: rank 0's buffers before the forward, each gradient twice less its own part."""
        ranks, work = self.num_used, self.workload
        if ranks < 2:
            return
        if work.buffer_bytes:
            ms = case.link_ms(work.buffer_bytes, self.link.ring_rate) + case.cost(BUCKET_MS)
            yield "buffers", work.buffer_bytes * (ranks - 1), ms
        each = 2 * (ranks - 1) / ranks * work.gradient_bytes
        begun = ceil(work.gradient_bytes / DDP_BUCKET_BYTES) * case.cost(BUCKET_MS)
        yield "all-reduce", round(each * ranks), case.link_ms(each, self.link.ring_rate) + begun

    def added(self, one_gpu_ms: float | None, case: Case) -> dict[PartName, float]:
        """Return the copies, and by how much DDP's hooks and bucket copies lengthen the backward.

        A backward can hide the ring for as long as it runs. In the published steps it hides next to nothing,
        and through the host nothing at all, so that only the fast end counts on it.
        """
        copies: dict[PartName, float] = {name: ms for name, _, ms in self.phases(case)}
        if not copies or one_gpu_ms is None:
            return copies
        hidden = (1 - FORWARD_SHARE) * one_gpu_ms if case is FAST and self.link.hides_ring else 0.0
        copies["all-reduce"] = max(0.0, copies["all-reduce"] - hidden)
        return {"backward": case.cost(DDP_SHARE) * one_gpu_ms, **copies}


AnyStep = DataParallelStep | DdpStep
