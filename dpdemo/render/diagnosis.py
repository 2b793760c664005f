"""Drawing a diagnosis: a line for each question, its mark first."""

from collections.abc import Iterator
from functools import partial

from rich.console import RenderableType
from rich.text import Text

from dpdemo.render.console import Canvas, grid
from dpdemo.render.files import Drawing
from dpdemo.render.markdown import escaped, table
from dpdemo.reports.diagnosis import Answer, Diagnosis
from dpdemo.wording import counted

_MARKS = {"good": ("ok", "green"), "look": ("look", "yellow"), "bad": ("no", "red"), "unknown": ("?", "cyan")}
"""Each mark as a word, so that no meaning hangs on its colour, and the colour."""


def drawing(report: Diagnosis) -> Drawing:
    """Make the drawing of a diagnosis."""
    return Drawing.of(report, "dpdemo doctor", partial(_draw, report), markdown=partial(_markdown, report))


def title(report: Diagnosis) -> str:
    """Say what was diagnosed."""
    batch = "" if report.batch_size is None else f", batch size {report.batch_size}"
    return f"Doctor: {report.target} over {counted(report.num_gpus, 'GPU')}{batch}"


def _draw(report: Diagnosis, canvas: Canvas) -> Iterator[RenderableType]:
    yield canvas.text(title(report), style="bold")
    for text in report.assumed:
        yield canvas.text(f"Assumed: {text}")
    yield Text()
    rows = grid("keep", "fold")
    for answer in report.answers:
        word, colour = _MARKS[answer.mark]
        lines = [canvas.text(answer.question, style="bold"), canvas.text(answer.text)]
        if answer.more:
            lines.append(canvas.text(f"$ {answer.more}", style="dim"))
        rows.add_row(Text(word, f"bold {colour}"), Text("\n").join(lines))
    yield rows


def _markdown(report: Diagnosis) -> Iterator[str]:
    yield f"**{escaped(title(report))}**\n\n"
    for text in report.assumed:
        yield f"Assumed: {escaped(text)}\n\n"
    yield from table(("", "question", "answer", "more"), map(_cells, report.answers))


def _cells(answer: Answer) -> tuple[str, ...]:
    return (_MARKS[answer.mark][0], *map(escaped, (answer.question, answer.text, answer.more)))
