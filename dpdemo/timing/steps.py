"""The time of a step over several GPUs, from that of one: the model of docs/speed-up.md.

Each step is computed three times: all ranges near their fast ends, in the middle, and near their slow ends.
Near is a tenth of the range, so that four fifths of each lie between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

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

    @property
    def num_used(self) -> int:
        """The number of GPUs with rows."""
        return len(self.shares)


class DataParallelStep(_Step):
    """A step of DataParallel."""

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

    def extra_ms(self, one_gpu_ms: float, case: Case) -> float:
        """Return how much longer a step is than that of one GPU with the rows of the fullest."""
        if self.num_used < 2:
            return 0.0
        copies = {name: ms for name, _, ms in self.phases(case)}
        copies["replicate"] = max(copies["replicate"], self.replicate_ms(case))
        return sum(copies.values()) + self._waited_for_lock(one_gpu_ms, case)

    def timeline(self, one_gpu_ms: float | None) -> Timeline:
        """List the parts of a step in the middle case; without a measured step only its copies.

        Python copies the modules while the broadcast runs, so that the longer of the two counts.
        """
        copies: dict[PartName, float] = {name: ms for name, _, ms in self.phases(MIDDLE)}
        if copies:
            copies["replicate"] = max(copies["replicate"], self.replicate_ms(MIDDLE))
        computed = dict(_computed(one_gpu_ms))
        if one_gpu_ms is not None and copies:
            computed["launching"] = self._waited_for_lock(one_gpu_ms, MIDDLE)
        parts = computed | copies
        return tuple((name, parts[name]) for name in _DATA_PARALLEL_ORDER if parts.get(name))

    def _waited_for_lock(self, one_gpu_ms: float, case: Case) -> float:
        """Return what launching takes longer than the forward that it runs ahead of."""
        launching = self.lock_ms(case)
        return max(0.0, launching - max(FORWARD_SHARE * one_gpu_ms, launching / self.num_used))


class DdpStep(_Step):
    """A step of DistributedDataParallel: a process for each GPU, gradients averaged in a ring."""

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

    def extra_ms(self, one_gpu_ms: float, case: Case) -> float:
        """Return how much longer a step is than that of one GPU with the same rows.

        A backward can hide the ring for as long as it runs. In the published steps it hides next to nothing,
        and through the host nothing at all, so that only the fast end counts on it.
        """
        if self.num_used < 2:
            return 0.0
        copies = {name: ms for name, _, ms in self.phases(case)}
        hidden = (1 - FORWARD_SHARE) * one_gpu_ms if case is FAST and self.link.hides_ring else 0.0
        ddp_ms = case.cost(DDP_SHARE) * one_gpu_ms
        return ddp_ms + copies.get("buffers", 0.0) + max(0.0, copies["all-reduce"] - hidden)

    def timeline(self, one_gpu_ms: float | None) -> Timeline:
        """List the parts of a step in the middle case; without a measured step only its copies.

        The backward includes DDP's hooks and bucket copies.
        """
        copies: dict[PartName, float] = {name: ms for name, _, ms in self.phases(MIDDLE)}
        parts = dict(_computed(one_gpu_ms)) | copies
        if one_gpu_ms is not None and copies:
            parts["backward"] += MIDDLE.cost(DDP_SHARE) * one_gpu_ms
        return tuple((name, parts[name]) for name in _DDP_ORDER if parts.get(name))


_DATA_PARALLEL_ORDER: tuple[PartName, ...] = (
    *("load", "scatter", "replicate", "forward", "launching", "gather"),
    *("output gradients", "backward", "reduce", "input gradients"),
)
_DDP_ORDER: tuple[PartName, ...] = ("buffers", "forward", "backward", "all-reduce")


def _computed(one_gpu_ms: float | None) -> Timeline:
    """Divide the step of one GPU into its forward and its backward."""
    if one_gpu_ms is None:
        return ()
    return ("forward", FORWARD_SHARE * one_gpu_ms), ("backward", (1 - FORWARD_SHARE) * one_gpu_ms)


AnyStep = DataParallelStep | DdpStep
