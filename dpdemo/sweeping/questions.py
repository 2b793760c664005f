"""What a sweep predicts of a model, and what is found for one cell."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from dpdemo.arithmetic.cards import CONTEXT_BYTES
from dpdemo.bytesize import parse_size, size
from dpdemo.config.cards import card_named
from dpdemo.config.fields import Config
from dpdemo.config.weights import is_weighted
from dpdemo.errors import UsageError
from dpdemo.reports.memory import Training
from dpdemo.reports.speedup import Anchor, Link, Workload
from dpdemo.reports.sweep import Predicted
from dpdemo.timing.anchors import check_rows, read_anchor
from dpdemo.timing.links import find_link, missing_link

Inputs = list[str] | str | None
"""Shapes such as `["32x128"]`, or the name of a function of the batch size."""


@dataclass(frozen=True)
class Question:
    """A model, a step of it, and what is assumed of the GPUs.

    `reserve`, `seq_len`, `image_size` and `numbers` are as for `predict_memory`; each GPU holds
    `capacity_bytes`. `link` and `anchors` are for the speed-up alone.
    """

    config: Config
    training: Training = field(default_factory=Training)
    inputs: Inputs = None
    card: str | None = None
    reserve: str | None = None
    seq_len: int | None = None
    image_size: int | None = None
    numbers: bool = False
    capacity_bytes: int | None = None
    link: Link | None = None
    anchors: tuple[Anchor, ...] = ()

    def check(self, of: Predicted) -> None:
        """Check that everything is there that a prediction needs.

        Raises:
            UsageError: it is not, or the batch is not cut as torch does.

        """
        if is_weighted(self.config):
            key = "weights" if self.config.chunks is None else "chunks"
            raise UsageError(
                f"expected a batch that is cut as torch does, which a sweep is about, got `{key}`",
                hint=f"leave `{key}` out",
            )
        if of == "fits" and self.capacity_bytes is None:
            raise UsageError(
                "expected what each GPU can hold, got nothing - at option `--gpu-memory`",
                hint="give a size for all, --gpu-memory 24GiB, or a card, --gpu A100-80GB",
            )
        if of == "speedup" and self.link is None:
            raise missing_link()
        if any(anchor.rows is None for anchor in self.anchors):
            raise UsageError(
                "expected a time with its rows, such as 49ms@32, got it without - at option `--one-gpu-step`",
                hint="the batch is different in each cell: say with how many rows the step was measured",
            )
        check_rows([anchor.rows for anchor in self.anchors])

    def assumed(self, of: Predicted) -> dict[str, str]:
        """Name what a prediction assumes, for its readers."""
        loss = self.training.loss
        told = {"inputs": self._shapes, "loss": "" if loss == "auto" else loss}
        if of == "speedup":
            told["link"] = self.link.name if self.link else ""
            told["one GPU takes"] = " and ".join(f"{one.ms:g} ms for {one.rows} rows" for one in self.anchors)
        else:
            told["optimizer"] = "" if self.training.inference else self.training.optimizer
            told["inference"] = "no gradients" if self.training.inference else ""
            told["autocast"] = "on" if self.training.amp else ""
            told["card"] = self.card or ""
            told["kept free"] = self.reserve or size(CONTEXT_BYTES)
        if of == "fits" and self.capacity_bytes:
            told["each GPU holds"] = size(self.capacity_bytes)
        return {name: text for name, text in told.items() if text}

    @property
    def _shapes(self) -> str:
        return self.inputs if isinstance(self.inputs, str) else " ".join(self.inputs or ())

    def decisive(self, of: Predicted) -> object:
        """Return what decides a prediction; capacities, links and anchors only judge it."""
        given = self.config.model_dump(exclude={"gpus", "batch_size", "data_size"})
        if of == "speedup":
            return "workload", given, self.training.loss, self.inputs
        sizes = (self.card, self.reserve, self.seq_len, self.image_size, self.numbers)
        return "memory", given, self.training, self.inputs, sizes


@dataclass(frozen=True, slots=True)
class Need:
    """What the GPU that needs most takes, and the least that any GPU must hold for the step to run."""

    needed_bytes: int
    least_bytes: int

    def answer(self, capacity_bytes: int) -> str:
        """Say whether GPUs of this size have room: as `MemoryReport.answer` does."""
        if self.needed_bytes <= capacity_bytes:
            return "fits"
        return "tight" if self.least_bytes <= capacity_bytes else "does not fit"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a model cannot run a batch."""

    failure: str
    hint: str = ""


Found = Need | Workload | Failure
_FOUND: TypeAdapter[Any] = TypeAdapter(Need | Workload | Failure)


def to_plain(found: Found) -> Any:
    """Write what was found as plain data."""
    return _FOUND.dump_python(found, mode="json")


def from_plain(plain: object) -> Found:
    """Read what was found from plain data."""
    read: Found = _FOUND.validate_python(plain)
    return read


def make_question(  # noqa: PLR0913 - all that a prediction depends on
    config: Config,
    training: Training | None = None,
    inputs: Inputs = None,
    *,
    gpu_memory: str | int | None = None,
    card: str | None = None,
    reserve: str | None = None,
    link: str | Link = "",
    steps: Sequence[str] = (),
    seq_len: int | None = None,
    image_size: int | None = None,
    numbers: bool = False,
) -> Question:
    """Read what a user gives: sizes, a link's name, and measured steps such as `49ms@32`.

    Raises:
        UsageError: for what cannot be read, or a link or a card that there is not.

    """
    return Question(
        config=config,
        training=training or Training(),
        inputs=inputs,
        card=card,
        reserve=reserve,
        seq_len=seq_len,
        image_size=image_size,
        numbers=numbers,
        capacity_bytes=_capacity(gpu_memory, card),
        link=(find_link(link) if link else None) if isinstance(link, str) else link,
        anchors=tuple(map(read_anchor, steps)),
    )


def _capacity(gpu_memory: str | int | None, card: str | None) -> int | None:
    """Return what each GPU can hold: the size given, else that of the card; None without either."""
    if gpu_memory is None:
        return None if card is None else card_named(card).memory_bytes
    try:
        return parse_size(gpu_memory)
    except ValueError as error:
        raise UsageError(
            f"{error} - at option `--gpu-memory`", hint="one size for all GPUs: --gpu-memory 24GiB"
        ) from None
