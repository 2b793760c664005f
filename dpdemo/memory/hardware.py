"""The assumed GPUs: their capacities, and the workspaces and scratch of their card."""

from collections.abc import Sequence
from dataclasses import dataclass

from dpdemo.arithmetic.cards import CONTEXT_BYTES, Card
from dpdemo.config.gpus import card_named
from dpdemo.errors import about
from dpdemo.sizes import capacities, parse_size

Sizes = str | int | Sequence[str | int] | None
_OLDEST_WITHOUT_TENSOR_CORES_FOR_FLOAT32 = 7
_HOPPER = 9  # a major compute capability

HANDLE_BYTES = 32 * 2**20
SMALL_HANDLE_BYTES = 4096 * 1024 * 2 + 16 * 1024 * 8
"""The workspace of a cuBLAS handle, which PyTorch takes from its own allocator and keeps: from Hopper on, and
on older GPUs (`parseChosenWorkspaceSize`, aten/src/ATen/cuda/CublasHandlePool.cpp)."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The capacity of each GPU, their card if it is named, and the memory that is kept free.

    Args:
        gpu_memory: the capacity of each GPU, as "24GiB" or in bytes, or a list with one for each.
        card: the name of a card of `arithmetic/cards.py`, such as "A100-80GB".
        reserve: memory kept free beside PyTorch's, for the CUDA context and other libraries.

    Raises:
        UsageError: if no card has the name, or the reserve cannot be read.

    """

    gpu_memory: Sizes = None
    card: str | None = None
    reserve: str | int | None = None

    def __post_init__(self) -> None:
        _ = self.found, self.reserve_bytes

    @property
    def found(self) -> Card | None:
        """The card."""
        return None if self.card is None else card_named(self.card)

    @property
    def capability(self) -> int | None:
        """The card's major compute capability, if it is known."""
        return None if self.found is None else self.found.capability[0]

    @property
    def scratch_capability(self) -> int:
        """The capability by which convolutions choose; of an unknown card, one that needs more scratch."""
        return self.capability or _OLDEST_WITHOUT_TENSOR_CORES_FOR_FLOAT32

    def workspaces(self, *, inference: bool) -> list[int]:
        """Return the bytes of each of cuBLAS's workspaces on one GPU; of an unknown card, the larger size.

        The thread that runs the forward pass has a handle on each GPU, and autograd's own thread another.
        """
        is_small = self.capability is not None and self.capability < _HOPPER
        return [SMALL_HANDLE_BYTES if is_small else HANDLE_BYTES] * (1 if inference else 2)

    @property
    def reserve_bytes(self) -> int:
        """The memory that is kept free."""
        if self.reserve in {"0", 0}:
            return 0
        with about("reserve"):
            return CONTEXT_BYTES if self.reserve is None else parse_size(self.reserve)

    def capacities(self, count: int) -> list[int | None]:
        """Return the capacity of each of `count` GPUs; None if unknown.

        Raises:
            UsageError: if a size cannot be read, or there are more or fewer of them than GPUs.

        """
        if self.gpu_memory is None and self.found is not None:
            return [self.found.memory_bytes] * count
        with about("gpu_memory"):
            return capacities(self.gpu_memory, count)
