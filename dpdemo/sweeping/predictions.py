"""Predictions for the cells of a sweep, each made once: of the memory of a step, and of what a step copies.

torch is imported when the first one is made: a sweep whose predictions are all kept needs none.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from dpdemo.errors import RunError
from dpdemo.reports.speedup import Workload
from dpdemo.sweeping.kept import Kept
from dpdemo.sweeping.questions import Failure, Found, Need, Question, from_plain, to_plain
from dpdemo.sweeping.sources import Noted, noting_sources
from dpdemo.timing.workload import builtin_workload

if TYPE_CHECKING:
    from dpdemo.sweeping.opened import OpenedModel

Prepare = Callable[[], None]
"""Called before torch is imported."""


class Predictions:
    """Gives the predictions of one question, and keeps the new ones when it is closed.

    `num_asked` counts the different ones that were asked for, `num_kept` those of them that were kept from
    earlier; `failure` is the first of a batch that the model cannot run.
    """

    def __init__(self, question: Question, kept: Kept, prepare: Prepare) -> None:
        self._question = question
        self._kept = kept
        self._prepare = prepare
        self._found: dict[str, Found] = {}
        self._new: dict[str, object] = {}
        self._model: OpenedModel | None = None
        self._noted: Noted | None = None
        self._open = ExitStack()
        self.num_kept = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._open:
            if self._noted is not None:
                self._kept.add(self._new, self._noted.sources())

    @property
    def num_asked(self) -> int:
        """How many different predictions were asked for."""
        return len(self._found)

    @property
    def failure(self) -> Failure | None:
        """The first batch that the model cannot run."""
        return next((found for found in self._found.values() if isinstance(found, Failure)), None)

    def need(self, gpus: int, batch_size: int) -> Need | Failure:
        """Predict what the GPUs need for a step with a batch."""
        found = self._once(f"{gpus} x {batch_size}", lambda model: model.need(gpus, batch_size))
        assert isinstance(found, Need | Failure)  # noqa: S101 - a question has one kind of prediction
        return found

    def workload(self, rows: int) -> Workload | Failure:
        """Predict what a step copies and launches per GPU; of a built-in model without torch."""
        asked = self._question
        if asked.config.is_builtin and asked.inputs is None:
            config = asked.config.model_copy(update={"batch_size": rows})
            return self._found.setdefault(str(rows), builtin_workload(config))  # type: ignore[return-value]
        found = self._once(str(rows), lambda model: model.workload(rows))
        assert isinstance(found, Workload | Failure)  # noqa: S101
        return found

    def _once(self, name: str, make: Callable[["OpenedModel"], Found]) -> Found:
        if name not in self._found:
            plain = self._kept.get(name)
            self.num_kept += plain is not None
            self._found[name] = self._made(name, make) if plain is None else from_plain(plain)
        return self._found[name]

    def _made(self, name: str, make: Callable[["OpenedModel"], Found]) -> Found:
        """Make it, or note why the model cannot run the batch: other batches may work."""
        try:
            found = make(self._opened())
        except RunError as error:
            found = Failure(error.message, error.hint)
        self._new[name] = to_plain(found)
        return found

    def _opened(self) -> "OpenedModel":
        if self._model is None:
            self._prepare()
            self._noted = self._open.enter_context(noting_sources())
            from dpdemo.sweeping.opened import OpenedModel

            self._model = OpenedModel(self._question)
            self._open.callback(self._model.close)
        return self._model
