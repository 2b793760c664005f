"""The GPUs that a program finds, and how they are opened in the program's process and in its children."""

import atexit
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, Self

from dpdemo.executing.extensions import refuse_cuda_extensions
from dpdemo.executing.importing import when_imported

if TYPE_CHECKING:
    from dpdemo.virtual import VirtualGpus


@dataclass(frozen=True)
class Hardware:
    """The program's GPUs: their number, capacities, random numbers and card."""

    num_gpus: int
    memory: Sequence[int] | None = None
    random: Literal["cuda", "cpu"] = "cuda"
    card: str | None = None

    def opened(self) -> "AbstractContextManager[VirtualGpus]":
        """Make the GPUs, for the length of a `with` block."""
        from dpdemo.virtual import virtual_gpus  # a launcher of ranks needs no torch

        when_imported("torch.utils.cpp_extension", refuse_cuda_extensions)
        return virtual_gpus(self.num_gpus, memory=self.memory, random=self.random, card=self.card)

    def open_until_exit(self, *, is_launched: bool = False) -> None:
        """Make the GPUs, until this process ends, and note what it does if it is a rank."""
        from dpdemo.executing.rank.following import follow

        opened = ExitStack()
        gpus = opened.enter_context(self.opened())
        atexit.register(opened.close)
        follow(gpus, is_launched=is_launched)

    def to_text(self) -> str:
        """Write it in one line, for an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` wrote."""
        return cls(**json.loads(text))
