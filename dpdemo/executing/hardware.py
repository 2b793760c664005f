"""The GPUs that a program finds, and how they are opened in the program's process and in its children."""

import atexit
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from typing import Literal, Self

from dpdemo.virtual import VirtualGpus, virtual_gpus


@dataclass(frozen=True)
class Hardware:
    """The program's GPUs: their number, capacities, random numbers and card."""

    num_gpus: int
    memory: Sequence[int] | None = None
    random: Literal["cuda", "cpu"] = "cuda"
    card: str | None = None

    def opened(self) -> AbstractContextManager[VirtualGpus]:
        """Make the GPUs, for the length of a `with` block."""
        return virtual_gpus(self.num_gpus, memory=self.memory, random=self.random, card=self.card)

    def open_until_exit(self) -> None:
        """Make the GPUs, until this process ends."""
        opened = ExitStack()
        opened.enter_context(self.opened())
        atexit.register(opened.close)

    def to_text(self) -> str:
        """Write it in one line, for an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` wrote."""
        return cls(**json.loads(text))
