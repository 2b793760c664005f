"""What is asked of a check: how many GPUs, which batches, which rules; looked over before anything is run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.arithmetic.weights import Weight, split_by_weights
from dpdemo.config.fields import INT64_MAX
from dpdemo.errors import UsageError
from dpdemo.wording import show

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of a check, as `check` describes them; `target` names the model in messages.

    Raises:
        UsageError: for a number of GPUs, a type, weights or chunks that cannot be.

    """

    gpus: int = 4
    dim: int = 0
    batch_size: int | None = None
    data_size: int | None = None
    drop_last: bool = False
    autocast: str | None = None
    weights: Sequence[Weight] = ()
    chunks: Sequence[int] = ()
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
        if self.chunks:
            self._expect_chunks()
        self._expect_shares()

    def say(self, what: str) -> None:
        """Tell what is under way, if anybody wants to know."""
        if self.progress is not None:
            self.progress(what)

    @property
    def shares(self) -> tuple[Weight, ...]:
        """The proportions that batches are cut in: of chunks those of a full batch; none if equal."""
        return tuple(self.chunks or self.weights)

    @property
    def rows(self) -> int | None:
        """How many rows a batch has, if it is said: chunks add up to it."""
        return sum(self.chunks) if self.chunks else self.batch_size

    def _expect_chunks(self) -> None:
        if self.weights:
            raise UsageError("expected one of them, got both", key="weights chunks")
        if not all(isinstance(chunk, int) and chunk >= 0 for chunk in self.chunks) or not sum(self.chunks):
            raise UsageError(
                f"expected rows for each GPU, got {list(self.chunks)}",
                key="chunks",
                hint="write for example {chunks=[4, 13, 13]}",
            )
        if self.batch_size not in {None, self.rows}:
            raise UsageError(
                f"expected a batch size of {self.rows}, got {self.batch_size}",
                key="batch_size",
                hint="chunks add up to it: leave it out",
            )

    def _expect_shares(self) -> None:
        number = len(self.shares)
        if number not in {0, self.gpus}:
            raise UsageError(
                f"expected a weight for each of the {self.gpus} GPUs, got {number}", key="weights"
            )
        try:
            split_by_weights(0, self.shares or (1,))
        except (TypeError, ValueError) as error:
            raise UsageError(f"{error}", key="weights", hint="write for example weights=(1, 2, 2)") from None
