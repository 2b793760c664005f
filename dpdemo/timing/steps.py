"""The costs of a step over several GPUs besides its computation; docs/speed-up.md has formulae and sources.

Each step is computed twice: all ranges near their fast ends, and near their slow ends. Near is a tenth of the
range, so that four fifths of each lie between.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from dpdemo.results.speedup import Ends, Link, Workload

FAST, SLOW = 0.1, 0.9
OPERATOR_MS: Final = Ends(0.004, 0.020)
"""To launch one operator from Python, which holds the interpreter's lock meanwhile."""
REPLICA_MS: Final = Ends(0.008, 0.025)
"""To copy one module, or to attach one tensor to its copy, in `torch.nn.parallel.replicate`."""
BUCKET_BYTES: Final = 10 * 2**20
"""The bucket that replicate broadcasts, and its backward reduces: `buffer_size` in nn/parallel/comm.py."""
DDP_BUCKET_BYTES: Final = 25 * 2**20
"""The bucket that DDP averages: `bucket_cap_mb` in torch/nn/parallel/distributed.py."""
BUCKET_MS: Final = Ends(0.020, 0.070)
"""To pack a bucket and to start its collective."""
COPY_MS: Final = Ends(0.010, 0.030)
"""The latency of any copy between two GPUs."""
FORWARD_SHARE: Final = 1 / 3
"""Of a step: a backward multiplies twice as much as its forward (Kaplan et al. 2020, section 2.1)."""
DDP_SHARE: Final = Ends(0.014, 0.055)
"""Of a step: DDP's hooks and bucket copies lengthen it by so much."""
_BYTES_A_MS: Final = 1e6  # of one GB/s
Copies = dict[str, tuple[int, float]]
"""The kinds of copies in a step: bytes and milliseconds of each."""


def between(ends: Ends, place: float) -> float:
    """Return the number at a place between both ends."""
    return ends.low + place * (ends.high - ends.low)


def link_ms(num_bytes: float, rate: Ends, place: float) -> float:
    """Return the time of a link for these bytes."""
    return between(Ends(num_bytes / rate.high, num_bytes / rate.low), place) / _BYTES_A_MS


@dataclass(frozen=True)
class _Step:
    """A step over several GPUs; `shares` has the rows of each as parts of the batch."""

    work: Workload
    link: Link
    shares: Sequence[float]

    def copies(self, place: float) -> Copies:
        """Return the bytes and the time of each kind of copy between GPUs, in the order of a step."""
        raise NotImplementedError

    def copies_ms(self, place: float) -> dict[str, float]:
        """Return the time of each kind of copy."""
        return {name: ms for name, (_, ms) in self.copies(place).items()}


class DataParallelStep(_Step):
    """A step of DataParallel."""

    def copies(self, place: float) -> Copies:
        """Copy rows to the other GPUs and back; broadcast the model, and reduce its gradients."""
        work, elsewhere, others = self.work, sum(self.shares[1:]), len(self.shares) - 1
        if not others:
            return {}

        def copied(whole_bytes: int) -> tuple[int, float]:
            num_bytes = whole_bytes * elsewhere
            begun = others * between(COPY_MS, place) if num_bytes else 0.0
            return round(num_bytes), link_ms(num_bytes, self.link.copy_rate, place) + begun

        def coalesced(num_bytes: int) -> tuple[int, float]:
            """NCCL hands each bucket on from GPU to GPU, or, at the slow end, all share one link."""
            begun = ceil(num_bytes / BUCKET_BYTES) * between(BUCKET_MS, place)
            through = num_bytes * (others if place == SLOW else 1)
            return num_bytes * others, link_ms(through, self.link.copy_rate, place) + begun

        return {
            "scatter": copied(work.input_bytes),
            "replicate": coalesced(work.parameter_bytes + work.buffer_bytes),
            "gather": copied(work.output_bytes),
            "output gradients": copied(work.output_gradient_bytes),
            "reduce": coalesced(work.gradient_bytes),
            "input gradients": copied(work.input_gradient_bytes),
        }

    def replicate_ms(self, place: float) -> float:
        """Return the time of Python to copy the modules of all replicas, while the broadcast runs."""
        found = self.work.launches
        handled = found.modules + found.tensors if found else 0
        return len(self.shares) * handled * between(REPLICA_MS, place)

    def launch_ms(self, place: float) -> float:
        """Return the time of one process to launch the forward of all replicas, a thread at a time."""
        found = self.work.launches
        return len(self.shares) * found.forward * between(OPERATOR_MS, place) if found else 0.0

    def extra_ms(self, alone_ms: float, place: float) -> float:
        """Return how much longer a step is than that of one GPU with the rows of the fullest, `alone_ms`."""
        copies = self.copies_ms(place)
        if not copies:
            return 0.0
        copies["replicate"] = max(copies["replicate"], self.replicate_ms(place))
        launching = self.launch_ms(place)
        hidden = max(
            FORWARD_SHARE * alone_ms, launching / len(self.shares)
        )  # launches run ahead of a forward
        return sum(copies.values()) + max(0.0, launching - hidden)


class DdpStep(_Step):
    """A step of DistributedDataParallel: a process for each GPU, gradients averaged in a ring."""

    def copies(self, place: float) -> Copies:
        """Broadcast rank 0's buffers; send each gradient round the ring twice, less each rank's own part."""
        ranks, work, rate, started = (
            len(self.shares),
            self.work,
            self.link.ring_rate,
            between(BUCKET_MS, place),
        )
        if ranks < 2:
            return {}
        each = 2 * (ranks - 1) / ranks * work.gradient_bytes
        buckets = ceil(work.gradient_bytes / DDP_BUCKET_BYTES)
        found = {"all-reduce": (round(each * ranks), link_ms(each, rate, place) + buckets * started)}
        if work.buffer_bytes:
            sent = work.buffer_bytes * (ranks - 1)
            return {"buffers": (sent, link_ms(work.buffer_bytes, rate, place) + started), **found}
        return found

    def extra_ms(self, alone_ms: float, place: float) -> float:
        """Return how much longer a step is than that of one GPU with the rows of the fullest, `alone_ms`.

        A backward can hide the ring for as long as it runs. In the published steps it hides next to nothing,
        and through the host nothing at all, so that only the fast end counts on it.
        """
        copies = self.copies_ms(place)
        if not copies:
            return 0.0
        hidden = (1 - FORWARD_SHARE) * alone_ms if place == FAST and self.link.hides_ring else 0.0
        copies["all-reduce"] = max(0.0, copies["all-reduce"] - hidden)
        return between(DDP_SHARE, place) * alone_ms + sum(copies.values())


AnyStep = DataParallelStep | DdpStep
