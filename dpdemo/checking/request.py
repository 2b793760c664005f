"""What is asked of a check: how many GPUs, which batches, which rules; looked over before anything is run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.config.fields import INT64_MAX
from dpdemo.errors import UsageError
from dpdemo.wording import show

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of a check, as `check` describes them; `target` names the model in messages.

    Raises:
        UsageError: for a number of GPUs or a type that cannot be.

    """

    gpus: int = 4
    dim: int = 0
    batch_size: int | None = None
    data_size: int | None = None
    drop_last: bool = False
    autocast: str | None = None
    select: Iterable[str] = ()
    ignore: Iterable[str] = ()
    progress: Progress | None = None
    target: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.gpus, bool) or not isinstance(self.gpus, int) or not 2 <= self.gpus <= MAX_GPUS:
            raise UsageError(
                f"expected 2 to {MAX_GPUS} GPUs, got {self.gpus!r}",
                key="gpus",
                hint="on one GPU DataParallel is a plain call, and PyTorch can number no more",
            )
        for key, size in (("batch_size", self.batch_size), ("data_size", self.data_size)):
            if size is not None and not 1 <= size <= INT64_MAX:
                raise UsageError(f"expected 1 to {INT64_MAX}, got {show(size)}", key=key)
        if self.autocast not in (None, "float16", "bfloat16"):
            raise UsageError(f"expected float16 or bfloat16, got {self.autocast!r}", key="autocast")

    def say(self, what: str) -> None:
        """Tell what is under way, if anybody wants to know."""
        if self.progress is not None:
            self.progress(what)
