"""The result of `check`: findings as a compiler shows them, with the line, the reason and the fix."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from dpdemo.results.findings import NOTHING_CALLED, SEVERITIES, Finding, Place, Severity
from dpdemo.results.formats import in_json
from dpdemo.results.report import Report
from dpdemo.results.table import Block, Canvas, Line, Table, Uncut, stacked, styled
from dpdemo.wording import counted, printable

_NOUNS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}
_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
_LABEL = len("  seen in")
_MOST_SEEN = 3


@dataclass(frozen=True, slots=True)
class CheckReport(Report):
    """The result of one check.

    `silenced` counts the findings that comments hide; `notes` say what could not be looked at, and why.
    `compared` says whether any batch had its results compared with those of one GPU. `ended_by` is the
    exception that ended a program, where no rule knows it.
    """

    SCHEMA: ClassVar[str] = "dpdemo.check/1"
    FORMS: ClassVar[tuple[str, ...]] = (*Report.FORMS, "github", "sarif")
    DERIVED: ClassVar[tuple[str, ...]] = ("ok",)
    model: str
    num_gpus: int = field(metadata=in_json("gpus"))
    findings: tuple[Finding, ...]
    batch_sizes: tuple[int, ...] = ()
    silenced: int = 0
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    compared: bool = True
    ended_by: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether no call was made, and nothing was found."""
        return self.model == NOTHING_CALLED and not self.findings

    @property
    def nothing_found(self) -> str:
        """Sum up a check without findings; it promises no more than was compared."""
        if not self.num_gpus:
            return "no rule of check is about this error"
        if self.model == NOTHING_CALLED or not self.compared:
            what = "checked" if self.model == NOTHING_CALLED else "compared"
            return f"nothing was {what}" + f"; {self.ending}" * bool(self.ended_by)
        if self.ended_by:
            return self.ending
        return "no pitfalls in what could be looked at" if self.notes else "no pitfalls"

    @property
    def ending(self) -> str:
        """The end of the program, if no rule explains it."""
        if self.ended_by == "KeyboardInterrupt":
            return "the program was interrupted"
        return f"the program ended with {printable(self.ended_by)}, which no rule knows"

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found, and everything was compared."""
        return not (self.findings or self.notes or self.ended_by) and self.compared

    @property
    def remarks(self) -> tuple[str, ...]:
        """Assumptions, and parts that could not be checked."""
        return (*self.assumed, *self.notes)

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not self.count("error")

    def fails(self, fail_on: Severity) -> bool:
        """Return whether a finding is as bad as `fail_on`, or worse."""
        bad = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
        return any(finding.severity in bad for finding in self.findings)

    def count(self, severity: Severity) -> int:
        """Count the findings of one severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes that were found, each once, in order."""
        return tuple(dict.fromkeys(finding.code for finding in self.findings))

    def pieces(self, form: str) -> Iterable[str]:
        """Yield the text of a format, piece by piece."""
        if form not in {"github", "sarif"}:
            return Report.pieces(self, form)
        from dpdemo.results import checkformats

        write = checkformats.as_github if form == "github" else checkformats.as_sarif
        return write(self.findings, self.remarks, self.summary)

    @property
    def summary(self) -> str:
        """The check in a line."""
        sizes = ", ".join(map(str, self.batch_sizes))
        batches = f", batch {'sizes ' if len(self.batch_sizes) > 1 else 'size '}{sizes}" if sizes else ""
        numbers = [(self.count(severity), noun) for severity, noun in _NOUNS.items()]
        found = ", ".join(counted(number, noun) for number, noun in numbers if number) or self.nothing_found
        silenced = f"; {self.silenced} silenced by comments" if self.silenced else ""
        where = f" on {counted(self.num_gpus, 'virtual GPU')}" if self.num_gpus else ""
        return f"{self.model}{where}{batches}: {found}{silenced}"

    def blocks(self, _: Canvas) -> Iterator[Block]:
        """Yield the findings, the notes, and the summary."""
        told: dict[object, str] = {}
        for finding in self.findings:
            if finding.severity == "info":
                yield _heading(finding) + styled(f": {finding.message}")
            else:
                repair = (finding.code, finding.before, finding.after)
                yield Uncut(_heading(finding))
                yield from _line(finding)
                yield _facts(finding, told.get(repair, ""))
                told.setdefault(repair, finding.place.short if finding.place else finding.subject)
                yield ()
        if self.findings and self.findings[-1].severity == "info":
            yield ()
        for note in self.remarks:
            yield styled(f"note: {note}")
        if self.remarks:
            yield ()
        style = "bold red" if not self.ok else "bold green" if self.is_clean else "bold"
        yield styled(self.summary, style)


def _heading(finding: Finding) -> Line:
    heading = ((finding.severity, _STYLES[finding.severity]), (" ", ""), (finding.code, "bold"))
    place = () if finding.place is None else styled("  ") + styled(finding.place.short, "dim")
    return heading + styled(f" {finding.name}") + place


def _line(finding: Finding) -> Iterator[Block]:
    """Yield the user's line with its number, and carets below what the finding is about."""
    place = finding.place
    if place is None or not place.code:
        return
    number = str(place.line).rjust(_LABEL - 1)
    start, end = _part(finding, place)
    margin = " " * len(number)
    yield Uncut(styled(f"{number} | ", "dim") + styled(place.code))
    carets = " " * len(printable(place.code[:start])) + "^" * max(len(place.code[start:end]), 1)
    yield Uncut(((f"{margin} | ", "dim"), (carets, _STYLES[finding.severity])))


def _part(finding: Finding, place: Place) -> tuple[int, int]:
    """Find in a line the name that a finding is about; else all of the line, but for a comment."""
    name = re.escape(finding.subject.partition(",")[0].rpartition(".")[2])
    found = re.search(rf"(\w+\.)*\b{name}\b", place.code) if re.fullmatch(r"\w+", name) else None
    if found is not None:
        return found.span()
    return 0, len(re.split(r"\s+#", place.code, maxsplit=1)[0])


def _facts(finding: Finding, as_at: str) -> Table:
    """Return the observation, the reason and the fix; a repeated fix is named by its place."""
    rows = Table((_LABEL, "fold"), gap=1)

    def add(label: str, *lines: str, style: str = "") -> None:
        rows.add(styled(f"  {label}" if label else "", "dim"), stacked(lines, style))

    add("", finding.message)
    if as_at:
        add("fix", f"as at {as_at}")
        return rows
    add("why", _flat(finding.rule.section("Why")))
    fix = "example" if finding.is_example else "fix"
    if finding.place is None or finding.before != finding.place.code:
        add("not", *finding.before.splitlines(), style="red")
    add(fix, *finding.after.splitlines(), style="green")
    if finding.seen_in:
        more = len(finding.seen_in) - _MOST_SEEN
        add("seen in", "; ".join(finding.seen_in[:_MOST_SEEN]) + (f" and {more} more" if more > 0 else ""))
    add("see", _flat(finding.rule.section("References")))
    return rows


def _flat(text: str) -> str:
    return " ".join(text.split())
