"""The result of `dpdemo doctor`: common questions about a model on several GPUs, a line each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from dpdemo.results.report import Report
from dpdemo.results.table import Block, Canvas, Table, joined, styled
from dpdemo.wording import counted

_MARKS = {"good": ("ok", "green"), "look": ("look", "yellow"), "bad": ("no", "red"), "unknown": ("?", "cyan")}
"""Each mark as a word, so that no meaning hangs on its colour, and the colour."""
Mark = Literal["good", "look", "bad", "unknown"]
"""The mark of an answer: `look` needs attention but is not a fault, `unknown` has no answer."""


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
    DERIVED: ClassVar[tuple[str, ...]] = ("ok",)
    target: str
    num_gpus: int
    batch_size: int | None
    assumed: tuple[str, ...]
    answers: tuple[Answer, ...]

    @property
    def ok(self) -> bool:
        """Whether no answer is bad."""
        return all(answer.mark != "bad" for answer in self.answers)

    def blocks(self, _: Canvas) -> Iterator[Block]:
        """Yield a line for each question, its mark first."""
        batch = "" if self.batch_size is None else f", batch size {self.batch_size}"
        title = f"Doctor: {self.target} over {counted(self.num_gpus, 'GPU')}{batch}"
        yield styled(title, "bold")
        for text in self.assumed:
            yield styled(f"Assumed: {text}")
        yield ()
        rows = Table(("keep", "fold"))
        for answer in self.answers:
            word, colour = _MARKS[answer.mark]
            lines = [styled(answer.question, "bold"), styled(answer.text)]
            if answer.more:
                lines.append(styled(f"$ {answer.more}", "dim"))
            rows.add(styled(word, f"bold {colour}"), joined(lines))
        yield rows
