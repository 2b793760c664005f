"""The parts of a memory report: a GPU at its fullest moment, a remedy, the largest batch; in bytes."""

import difflib
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from dpdemo.config.targets import is_target
from dpdemo.errors import UsageError
from dpdemo.results.formats import in_json
from dpdemo.wording import show

PARTS = (
    *("parameters", "gradients", "optimizer state", "buffers", "inputs", "activations"),
    *("replica copies", "gathered outputs", "temporaries", "library workspaces", "cuDNN scratch"),
    *("gradient buckets", "gathered blocks", "block remainders"),
)
"""The uses of a GPU's bytes. A storage counts by its final use."""

KEYS = tuple(part.replace(" ", "_") for part in PARTS)
"""The key of each of PARTS in JSON."""

LOSSES = ("output.loss", "mean", "mse", "cross-entropy")
"""The losses that have a name; any other is `pkg.mod:function`."""

Phase = Literal[
    "scatter", "replicate", "forward", "gather", "loss", "backward", "optimizer step", "between steps"
]
Optimizer = Literal["none", "sgd", "momentum", "adam", "adamw", "adafactor"]
ZeroGrad = Literal["before", "after", "to-zero"]
_FUSED = ("sgd", "momentum", "adam", "adamw")
Answer = Literal["fits", "tight", "does not fit"]


@dataclass(frozen=True, slots=True)
class Training:
    """One training step, or one of inference: what is assumed beside the config.

    `loss` is "output.loss", "mean", "mse", "cross-entropy" or `pkg.mod:function`; "auto" is the output's own
    loss if it has one, else the mean, and a report says which it was. `amp` says whether the forward pass
    runs under `torch.autocast`. `zero_grad` says when gradients are freed: "before" the forward pass, "after"
    it, or never, since they are set "to-zero" instead. `frees_output` says whether the loop drops the model's
    output before the backward pass, `fused` whether the optimizer steps in one kernel (`fused=True`).

    Raises:
        UsageError: for an unknown optimizer or `zero_grad`, or a loss that has none of these forms.

    """

    optimizer: Optimizer = "adamw"
    loss: str = "auto"
    amp: bool = False
    inference: bool = False
    zero_grad: ZeroGrad = "before"
    frees_output: bool = False
    fused: bool = False

    def __post_init__(self) -> None:
        for key, known in (("optimizer", get_args(Optimizer)), ("zero_grad", get_args(ZeroGrad))):
            if getattr(self, key) not in known:
                got = show(getattr(self, key))
                raise UsageError(f"expected one of {', '.join(known)}, got {got}", key=key)
        if self.fused and self.optimizer not in _FUSED:
            raise UsageError(
                f"expected one of {', '.join(_FUSED)}, got {self.optimizer}", key="fused optimizer"
            )
        if self.inference or self.loss in {"auto", *LOSSES} or (":" in self.loss and is_target(self.loss)):
            return
        near = difflib.get_close_matches(self.loss, LOSSES, n=1)
        raise UsageError(
            f"expected {', '.join(LOSSES)} or `pkg.mod:function`, got {show(self.loss)}",
            key="loss",
            hint=f"did you mean `{near[0]}`?" if near else "a function gets the output and returns the loss",
        )


def _by_part(sizes: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(KEYS, sizes, strict=False))  # the largest may not be known


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """One GPU at its fullest moment: how much, for what (one number for each of PARTS), and when.

    `rows` are those that it gets of the batch. `largest` is the most of each part at any moment of the step.
    `reserved_bytes` is what PyTorch would have taken from the driver by the end of the step, and
    `context_bytes` what the process takes beside: together what `nvidia-smi` shows.
    """

    device: str
    parts: tuple[int, ...] = field(metadata=in_json("parts_bytes", _by_part))
    phase: Phase
    capacity_bytes: int | None = None
    rows: int = 0
    largest: tuple[int, ...] = field(default=(), metadata=in_json("largest_parts_bytes", _by_part))
    reserved_bytes: int = 0
    context_bytes: int = 0
    DERIVED: ClassVar[tuple[str, ...]] = ("peak_bytes", "needed_bytes", "spare_bytes", "answer", "fits")

    @property
    def peak_bytes(self) -> int:
        """The bytes at that moment, the workspaces of CUDA's libraries included."""
        return sum(self.parts)

    @property
    def needed_bytes(self) -> int:
        """The memory of the process, as `nvidia-smi` would show it."""
        return max(self.reserved_bytes, self.peak_bytes) + self.context_bytes

    @property
    def spare_bytes(self) -> int | None:
        """The capacity left beside that, negative if it lacks; None without a known capacity."""
        return None if self.capacity_bytes is None else self.capacity_bytes - self.needed_bytes

    @property
    def least_bytes(self) -> int:
        """The least it needs: the tensors alone, with no scratch for convolutions, and the context."""
        return self.peak_bytes - self.parts[PARTS.index("cuDNN scratch")] + self.context_bytes

    @property
    def answer(self) -> Answer:
        """Whether its capacity suffices; one without a capacity holds anything.

        It is tight where only the tensors have room: PyTorch then gives unused memory back, and runs
        convolutions without scratch, before it fails.
        """
        if self.spare_bytes is None or self.spare_bytes >= 0:
            return "fits"
        return "tight" if self.least_bytes <= (self.capacity_bytes or 0) else "does not fit"

    @property
    def fits(self) -> bool:
        """Whether the step runs, even if tightly."""
        return self.answer != "does not fit"


RemedyName = Literal[
    "loss inside the model",
    "another output_device",
    "activation checkpointing",
    "autocast",
    "gradient accumulation",
    "DistributedDataParallel",
]


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that would help, predicted like all else: the tightest GPU with it, and its peak.

    `gain_bytes` is how much more room the worst GPU has then: a change that only moves the need gains little.
    """

    name: RemedyName
    how: str
    gain_bytes: int
    fullest: str
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Fit:
    """The largest batch with which every GPU fits, found by predictions on both sides of it.

    `largest` is 0 where not even one sample fits. `binding` is the first GPU that lacks room at the next
    larger batch, and `phase` when; `missing_bytes` is what it lacks there. `margin` is by how many rows the
    answer moves if a real GPU needs more or less than is predicted, as in the worst of the published cases.
    """

    largest: int
    binding: str
    phase: Phase
    missing_bytes: int
    num_predictions: int
    remedies: tuple[Remedy, ...] = ()
    margin: int = 0
