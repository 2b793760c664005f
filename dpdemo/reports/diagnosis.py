"""What `dpdemo doctor` answers: the questions that people have about a model on several GPUs, a line each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from dpdemo.reports.base import Report, Row, computed

Mark = Literal["good", "look", "bad", "unknown"]
"""How an answer turned out: `look` is not a fault but worth a look, `unknown` was not asked or cannot be."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question, and the command that tells more ("" where there is none)."""

    question: str
    mark: Mark
    text: str
    more: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis(Report):
    """The answers for one model or program; `assumed` says what was worked out since it was not given."""

    SCHEMA: ClassVar[str] = "dpdemo.doctor/1"
    columns: ClassVar[tuple[str, ...]] = ("question", "mark", "text", "more")
    target: str
    num_gpus: int
    batch_size: int | None
    assumed: tuple[str, ...]
    answers: tuple[Answer, ...]

    @computed
    def ok(self) -> bool:
        """Whether no answer is bad."""
        return all(answer.mark != "bad" for answer in self.answers)

    def each_row(self) -> Iterator[Row]:
        """Yield a row for each answer."""
        for answer in self.answers:
            yield answer.question, answer.mark, answer.text, answer.more
