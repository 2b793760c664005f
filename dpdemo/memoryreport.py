"""What `memory` returns: the bytes of each GPU at its fullest moment, and whether they fit.

Frozen and torch-free; `footprint` makes one, `render` reads it. All sizes are in bytes.
"""

from dataclasses import dataclass
from typing import Literal

from dpdemo.config import Config
from dpdemo.report import Shape

PARTS = (
    *("parameters", "gradients", "optimizer state", "buffers", "inputs", "activations"),
    *("replica copies", "gathered outputs", "temporaries", "library workspaces"),
)
"""What the bytes of a GPU are for. A storage counts as what it turned out to be for."""

LOSSES = ("output.loss", "mean", "mse", "cross-entropy")
"""The losses that have a name; any other is `pkg.mod:function`."""

Phase = Literal[
    "scatter", "replicate", "forward", "gather", "loss", "backward", "optimizer step", "between steps"
]
Optimizer = Literal["none", "sgd", "momentum", "adam", "adamw"]


@dataclass(frozen=True, slots=True)
class Training:
    """One training step, or one of inference: what is assumed beside the config.

    `loss` is "output.loss", "mean", "mse", "cross-entropy" or `pkg.mod:function`; "auto" is the output's own
    loss if it has one, else the mean, and a report says which it was. `amp` says whether the forward pass
    runs under `torch.autocast`.
    """

    optimizer: Optimizer = "adamw"
    loss: str = "auto"
    amp: bool = False
    inference: bool = False


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """One GPU at its fullest moment: how much, for what (one number for each of PARTS), and when."""

    device: str
    parts: tuple[int, ...]
    phase: Phase
    capacity_bytes: int | None = None

    @property
    def peak_bytes(self) -> int:
        """What it holds at that moment, the workspaces of CUDA's libraries included."""
        return sum(self.parts)

    @property
    def spare_bytes(self) -> int | None:
        """What is left at that moment, negative where it does not fit; None where no capacity is known."""
        return None if self.capacity_bytes is None else self.capacity_bytes - self.peak_bytes

    @property
    def fits(self) -> bool:
        """Whether its capacity suffices; one without a capacity holds anything."""
        return self.spare_bytes is None or self.spare_bytes >= 0


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that would help, predicted like all else: the fullest GPU and its peak with it.

    `gain_bytes` is what the GPU that binds holds less by it.
    """

    name: Literal[
        "loss inside the model", "another output_device", "smaller chunk on GPU 0", "inference mode"
    ]
    how: str
    gain_bytes: int
    fullest: str
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Fit:
    """The largest batch with which every GPU fits, found by predictions on both sides of it.

    `largest` is 0 where not even one sample fits. `binding` is the first GPU that lacks room at the next
    larger batch, and `phase` when; `missing_bytes` is what it lacks there.
    """

    largest: int
    binding: str
    phase: Phase
    missing_bytes: int
    num_predictions: int
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What each GPU must hold for one step at a batch size.

    `chunks` has the rows that each GPU gets; `inputs` the shapes of the whole batch by argument. With `fit`
    the step is that of the largest batch that fits; where none does, of the smallest that the model can run.
    """

    config: Config
    training: Training
    batch_size: int
    num_parameters: int
    inputs: tuple[tuple[str, Shape], ...]
    chunks: tuple[int, ...]
    gpus: tuple[GpuMemory, ...]
    fit: Fit | None = None

    @property
    def fits(self) -> bool:
        """Whether every GPU fits."""
        return all(gpu.fits for gpu in self.gpus)

    @property
    def fullest(self) -> GpuMemory:
        """The GPU with the least room left; without capacities, the one that holds most."""
        if any(gpu.spare_bytes is not None for gpu in self.gpus):
            return min(self.gpus, key=lambda gpu: gpu.spare_bytes or 0)
        return max(self.gpus, key=lambda gpu: gpu.peak_bytes)
