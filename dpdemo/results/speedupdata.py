"""The parts of a speed-up report: the link, the work of a step, and each way to use more GPUs.

Bytes are exact, times are estimates with both ends; all times are in milliseconds.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dpdemo.wording import ms_span

Strategy = Literal["DataParallel", "DDP"]
Verdict = Literal["pays", "does not pay", "cannot tell"]
PhaseName = Literal[
    "load",
    "scatter",
    "replicate",
    "gather",
    "output gradients",
    "reduce",
    "input gradients",
    "buffers",
    "all-reduce",
]
PartName = PhaseName | Literal["forward", "launching", "backward"]
Timeline = tuple[tuple[PartName, float], ...]
"""The parts of one step in their order, each with its expected milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with both of its ends; `point` is what to expect."""

    low: float
    point: float
    high: float

    @property
    def span(self) -> str:
        """Both ends, of a time in milliseconds: `62–83 ms`."""
        return ms_span(self.low, self.high)

    @property
    def expected(self) -> str:
        """The point, of a time in milliseconds: `71 ms`."""
        return ms_span(self.point, self.point)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The rate of a link one way in GB/s (10⁹ bytes), from the least to the most measured."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link between GPUs: `copy_rate` between two of them, `ring_rate` for NCCL's all-reduce over all.

    Where it is shared, all that GPU 0 sends to the replicas goes through one place, one after another.
    `hides_ring` says whether a backward can go on while the ring runs.
    """

    name: str
    copy_rate: Rate
    ring_rate: Rate
    is_shared: bool
    hides_ring: bool
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """The work of Python for each replica: operators of a forward and a backward, modules, tensors."""

    forward: int
    backward: int
    modules: int
    tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One GPU's share of a step: the bytes of the model, and of `rows` rows of its inputs and outputs.

    Gradients of the outputs travel where the loss is computed on what was gathered, those of the inputs where
    something before the split part is trained.
    `rows` is None where only the bytes are known; `launches` where they were not counted.
    """

    name: str
    rows: int | None
    num_parameters: int
    parameter_bytes: int
    gradient_bytes: int
    buffer_bytes: int
    input_bytes: int
    output_bytes: int
    output_gradient_bytes: int = 0
    input_gradient_bytes: int = 0
    launches: Launches | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A step that was measured on one GPU, forward to optimizer, with this many rows (None: the batch)."""

    ms: float
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCost:
    """The copies of one phase in a step, and their time.

    All are copies between GPUs but `load`: what one process copies from the host beyond one GPU's inputs.
    """

    name: PhaseName
    num_bytes: int
    ms: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """A way to use more GPUs: the rows of each (None: unknown), the step, and what is gained.

    `one_gpu_ms` is what one GPU takes for the rows that are compared: those of one GPU where each GPU keeps
    its rows, all of them where the batch is divided. The break-even is a step of one GPU, of its own batch.
    """

    rows: tuple[int, ...] | None
    phases: tuple[PhaseCost, ...]
    break_even_ms: Estimate | None
    one_gpu_ms: Estimate | None = None
    step_ms: Estimate | None = None
    speedup: Estimate | None = None
    efficiency: Estimate | None = None
    verdict: Verdict | None = None
    DERIVED: ClassVar[tuple[str, ...]] = ("moved_bytes", "copies_ms")

    @property
    def moved_bytes(self) -> int:
        """All bytes copied between GPUs in a step."""
        return sum(phase.num_bytes for phase in self.phases if phase.name != "load")

    @property
    def copies_ms(self) -> Estimate:
        """The time of all copies, one after another."""
        ends = [phase.ms for phase in self.phases]
        return Estimate(
            low=sum(ms.low for ms in ends),
            point=sum(ms.point for ms in ends),
            high=sum(ms.high for ms in ends),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One strategy over one number of GPUs.

    `weak` keeps the rows of each GPU, `strong` divides the batch of one GPU. `lock_ms` is how long one
    process needs to launch the forward of all replicas, a thread at a time, `replicate_ms` how long to copy
    their modules; None where that is not known, or where each replica has its own process. `timeline` has the
    parts of one weak step; only its copies where no step of one GPU was measured.
    """

    num_gpus: int
    strategy: Strategy
    weak: Scaling
    strong: Scaling
    lock_ms: Estimate | None = None
    replicate_ms: Estimate | None = None
    timeline: Timeline = ()
