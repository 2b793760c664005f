"""The GPUs that a program finds, in its own process and in the Python processes that it starts.

Those are ranks, workers, launchers, subprocesses. Each Python imports `sitecustomize` when it starts. The
folder `startup` holds one and comes first on PYTHONPATH while the program runs. In a child it waits until
torch is imported and then opens the same GPUs as in the parent: each process sees all of them, as on one
machine. `CUDA_VISIBLE_DEVICES` reaches a child as the program set it. Where the program set nothing, children
inherit a name that no GPU has: real GPUs stay hidden, and `sitecustomize` takes it for an unset variable.
"""

import atexit
import functools
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from dpdemo.startup.hook import GPUS, HIDDEN, PATH, VISIBLE, when_imported

if TYPE_CHECKING:
    from dpdemo.virtual import VirtualGpus

STARTUP = str(Path(__file__).parent / "startup")  # the folder of `sitecustomize`, for PYTHONPATH


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

        when_imported("torch.utils.cpp_extension", _refuse_cuda_extensions)
        return virtual_gpus(self.num_gpus, memory=self.memory, random=self.random, card=self.card)

    def open_until_exit(self, *, is_launched: bool = False) -> None:
        """Make the GPUs, until this process ends, and note what it does if it is a rank."""
        from dpdemo.ranks.observe.follow import follow

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


@contextmanager
def reaching_children(hardware: Hardware) -> Iterator[None]:
    """Open these GPUs in each Python that the process starts, too, for the length of a `with` block."""
    before = {name: os.environ.get(name) for name in (GPUS, PATH, VISIBLE)}
    os.environ[GPUS] = hardware.to_text()
    os.environ[PATH] = os.pathsep.join(filter(None, (STARTUP, before[PATH])))
    os.environ[VISIBLE] = HIDDEN
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _refuse_cuda_extensions(cpp_extension: Any) -> None:
    """Make `torch.utils.cpp_extension` name the first source that needs nvcc, and build what needs none.

    No compiler of CUDA makes code for a virtual GPU.
    """
    build = cpp_extension._jit_compile

    @functools.wraps(build)
    def jit_compile(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
        from dpdemo.virtual import UnsupportedOpError

        for source in [sources] if isinstance(sources, str) else sources:
            if cpp_extension._is_cuda_file(str(source)):
                made = f"what nvcc makes of {Path(source).name}"
                raise UnsupportedOpError(f"CUDA extension {name}: a virtual GPU does not run {made}")
        return build(name, sources, *args, **kwargs)

    cpp_extension._jit_compile = jit_compile
