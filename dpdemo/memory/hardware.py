"""The GPUs that a prediction is for: what each can hold, and what its card decides."""

from collections.abc import Sequence
from dataclasses import dataclass

from dpdemo.arithmetic.cards import CONTEXT_BYTES, Card
from dpdemo.bytesize import capacities, parse_size
from dpdemo.config.cards import card_named
from dpdemo.errors import UsageError

Sizes = str | int | Sequence[str | int] | None
_OLDEST_WITHOUT_TENSOR_CORES_FOR_FLOAT32 = 7


@dataclass(frozen=True, slots=True)
class Hardware:
    """What is assumed of the GPUs: the capacity of each, their card if it is named, what else takes room.

    Args:
        gpu_memory: the capacity of each GPU, as "24GiB" or in bytes, or a list with one for each.
        card: the name of a card of `arithmetic/cards.py`, such as "A100-80GB".
        reserve: what is kept free beside what PyTorch takes, for the CUDA context and other libraries.

    """

    gpu_memory: Sizes = None
    card: str | None = None
    reserve: str | int | None = None

    @property
    def found(self) -> Card | None:
        """The card.

        Raises:
            UsageError: if no card has the name.

        """
        return None if self.card is None else card_named(self.card)

    @property
    def capability(self) -> int | None:
        """The card's major compute capability, if it is known."""
        return None if self.found is None else self.found.capability[0]

    @property
    def scratch_capability(self) -> int:
        """The capability by which convolutions choose: of a card that is not known, one that needs more."""
        return self.capability or _OLDEST_WITHOUT_TENSOR_CORES_FOR_FLOAT32

    @property
    def reserve_bytes(self) -> int:
        """What is kept free.

        Raises:
            UsageError: if the reserve is no size.

        """
        if self.reserve in {"0", 0}:
            return 0
        try:
            return CONTEXT_BYTES if self.reserve is None else parse_size(self.reserve)
        except ValueError as error:
            raise UsageError(f"{error} - at option `--reserve`") from None

    def capacities(self, count: int) -> list[int | None]:
        """Return the capacity of each of `count` GPUs; None where none is known.

        Raises:
            UsageError: if a size cannot be read, or there are more or fewer of them than GPUs.

        """
        if self.gpu_memory is None and self.found is not None:
            return [self.found.memory_bytes] * count
        try:
            return capacities(self.gpu_memory, count)
        except ValueError as error:
            raise UsageError(f"{error} - at option `--gpu-memory`") from None
