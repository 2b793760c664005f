"""Findings of a check, and the pages of rules.

A `Finding` names the cause in the user's words: an attribute, an argument, a line or a factor. The page of
its rule says what happens in general, why, and what to do.
"""

import os
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from dpdemo.results.formats import in_json

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


NOTHING_CALLED = "(no DataParallel call)"
"""The name of the model if a program never split a batch."""


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
    """The page of a rule: its name and sections."""

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


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause, the rule that it was found by, and a repair.

    `subject` tells it from others of the same rule: two findings that share it are one. In JSON `file` and
    `line` are null if no line of the model's code is to blame; `seen_in` names the batches.
    """

    DERIVED: ClassVar[tuple[str, ...]] = (
        *("file", "line", "code", "name", "family", "before", "after", "is_example", "references"),
    )
    rule: RulePage = field(metadata=in_json(""))
    severity: Severity
    subject: str
    message: str
    place: Place | None = field(default=None, metadata=in_json(""))
    seen_in: tuple[str, ...] = ()
    code_before: str = field(default="", metadata=in_json(""))
    code_after: str = field(default="", metadata=in_json(""))
    example: bool = field(default=False, metadata=in_json(""))
    """Whether `code_after` is a worked example in the user's names, not their rewritten line."""
    set_at: Place | None = field(default=None, metadata=in_json(""))
    """The line that sets the attribute, if it is another one."""

    @property
    def file(self) -> str | None:
        """The file of the user's code."""
        return relative(self.place.file) if self.place else None

    @property
    def line(self) -> int | None:
        """The line in it."""
        return self.place.line if self.place else None

    @property
    def code(self) -> str:
        """The rule's code."""
        return self.rule.code

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.rule.name

    @property
    def family(self) -> str:
        """The part of DataParallel that the rule is about."""
        return self.rule.family

    @property
    def before(self) -> str:
        """Code as it should not be: the user's own, or else an example."""
        return self.code_before or self.rule.section("Before")

    @property
    def after(self) -> str:
        """The same code as it should be."""
        return self.code_after or self.rule.section("After")

    @property
    def is_example(self) -> bool:
        """Whether `before` and `after` are an example, not the user's rewritten line."""
        return self.example or not self.code_after

    @property
    def references(self) -> list[str]:
        """Places in PyTorch's code and documentation."""
        return self.rule.section("References").split(", ")
