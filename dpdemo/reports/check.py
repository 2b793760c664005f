"""What a check found: torch-free, frozen, and the same for every renderer.

A `Finding` names the cause, in the user's words: an attribute, an argument, a line or a factor. The page of
its rule says what happens in general, why, and what to do.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from dpdemo.reports.base import Hidden, Report, Row, computed
from dpdemo.wording import printable

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


NOTHING_CALLED = "(no DataParallel call)"
"""What stands for the model where a program made no call that splits a batch."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's code."""

    file: str
    line: int
    function: str = ""
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def short(self) -> str:
        """Its file and line, seen from the current folder where it is in there."""
        return f"{relative(self.file)}:{self.line}"


def relative(file: str) -> str:
    """Write a file as seen from the root of GitHub's checkout, or from the current folder, if it is there."""
    try:
        here = os.getcwd()  # noqa: PTH109 - text
    except FileNotFoundError:  # the folder was deleted
        return file
    if not os.path.isabs(file):  # noqa: PTH117 - such as "<string>"
        return os.path.normpath(file) if file.startswith(".") else file
    real = os.path.realpath(file)
    for folder in (os.environ.get("GITHUB_WORKSPACE", ""), here):  # annotations want the checkout's
        root = os.path.realpath(folder) + os.sep
        if folder and real.startswith(root):
            return real.removeprefix(root)
    return file


FAMILIES = {
    "DP1": "wrapper",
    "DP2": "scatter",
    "DP3": "replica",
    "DP4": "gather",
    "DP5": "loss",
    "DP6": "threads",
    "DP7": "resources",
}


SECTIONS = ("What happens", "Why", "Before", "After", "Seen by", "References")


@dataclass(frozen=True, slots=True)
class RulePage:
    """What a rule says in general: its name, and the sections of its page."""

    code: str
    name: str
    severity: Severity
    title: str
    page: tuple[tuple[str, str], ...]

    @property
    def family(self) -> str:
        """The part of DataParallel that it is about."""
        return FAMILIES[self.code[:3]]

    def section(self, name: str) -> str:
        """Return one section of its page."""
        return dict(self.page).get(name, "")


class _Placed:
    """What stands at a line of the user's code, if there is one."""

    __slots__ = ()
    if TYPE_CHECKING:
        place: Place | None

    @computed
    def file(self) -> str | None:
        """The file of the user's code."""
        return relative(self.place.file) if self.place else None

    @computed
    def line(self) -> int | None:
        """The line in it."""
        return self.place.line if self.place else None


@dataclass(frozen=True, slots=True)
class Change(_Placed):
    """A further line that a repair changes: the code as it stands, and what to write in its place.

    In JSON `file` and `line` are null where it is the program's that calls the model.
    """

    place: Annotated[Place | None, Hidden]
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Finding(_Placed):
    """One cause, the rule that it was found by, and a repair.

    `subject` tells it from others of the same rule: two findings that share it are one. In JSON `file` and
    `line` are null where no line of the model's code stands for it; `seen_in` names the batches. A repair
    that takes more than one change has the others in `also`.
    """

    rule: Annotated[RulePage, Hidden]
    severity: Severity
    subject: str
    message: str
    place: Annotated[Place | None, Hidden] = None
    seen_in: tuple[str, ...] = ()
    own_before: Annotated[str, Hidden] = ""
    own_after: Annotated[str, Hidden] = ""
    example: Annotated[bool, Hidden] = False
    """Whether `own_after` is a worked example in the user's names, and not their line written anew."""
    also: tuple[Change, ...] = ()
    set_at: Annotated[Place | None, Hidden] = None
    """Where the attribute that it is about is set, if that is another line."""

    @computed
    def code(self) -> str:
        """The rule's code."""
        return self.rule.code

    @computed
    def name(self) -> str:
        """The rule's name."""
        return self.rule.name

    @computed
    def family(self) -> str:
        """The part of DataParallel that the rule is about."""
        return self.rule.family

    @computed
    def before(self) -> str:
        """Code as it should not be: the user's own, or else an example."""
        return self.own_before or self.rule.section("Before")

    @computed
    def after(self) -> str:
        """The same code as it should be."""
        return self.own_after or self.rule.section("After")

    @computed
    def is_example(self) -> bool:
        """Whether `before` and `after` are an example, and not the user's own line written anew."""
        return self.example or not self.own_after

    @computed
    def references(self) -> list[str]:
        """Where PyTorch says so."""
        return self.rule.section("References").split(", ")


@dataclass(frozen=True, slots=True)
class CheckReport(Report):
    """The result of one check.

    `silenced` counts the findings that comments hide, `known` those that a baseline does; `notes` say what
    could not be looked at, and why. `compared` says whether any batch had its results compared with those of
    one GPU. `ended_by` is the exception that ended a program, where no rule knows it.
    """

    SCHEMA: ClassVar[str] = "dpdemo.check/1"
    columns: ClassVar[tuple[str, ...]] = (
        *("code", "name", "family", "severity", "subject", "file", "line", "message", "seen_in"),
    )
    model: str
    num_gpus: Annotated[int, Field(serialization_alias="gpus")]
    findings: tuple[Finding, ...]
    batch_sizes: tuple[int, ...] = ()
    silenced: int = 0
    notes: tuple[str, ...] = ()
    known: int = 0
    assumed: tuple[str, ...] = ()
    compared: bool = True
    ended_by: str = ""

    @property
    def nothing_found(self) -> str:
        """Sum up a check without findings; it promises no more than was compared."""
        if not self.num_gpus:
            return "no rule knows this error"
        if self.model == NOTHING_CALLED or not self.compared:
            what = "checked" if self.model == NOTHING_CALLED else "compared"
            return f"nothing was {what}" + f"; {self.ending}" * bool(self.ended_by)
        if self.ended_by:
            return self.ending
        return "no pitfalls in what could be looked at" if self.notes else "no pitfalls"

    @property
    def ending(self) -> str:
        """How the program ended, where no rule explains it."""
        if self.ended_by == "KeyboardInterrupt":
            return "the program was interrupted"
        return f"the program ended with {printable(self.ended_by)}, which no rule knows"

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found, and everything was compared."""
        return not (self.findings or self.notes or self.ended_by) and self.compared

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was assumed, and what could not be looked at."""
        return (*self.assumed, *self.notes)

    def each_row(self) -> Iterator[Row]:
        """Yield a row per finding."""
        for one in self.findings:
            where = (one.subject, one.file, one.line)
            yield one.code, one.name, one.family, one.severity, *where, one.message, "; ".join(one.seen_in)

    @computed
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
