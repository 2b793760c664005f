"""A comment in the user's code that silences rules on its line: `# dpdemo: ignore[DP302]`."""

import linecache
import re
from collections.abc import Iterator
from dataclasses import replace

from dpdemo.checking.registry import is_named
from dpdemo.reports.check import Finding, Place

_COMMENT = re.compile(r"#\s*dpdemo:\s*ignore(?P<list>\[(?P<names>[^\]]*)\])?")


def is_silenced(finding: Finding) -> bool:
    """Return whether the line that a finding points to asks for silence, or the one that sets its attribute.

    A comment without brackets silences every rule; one with brackets those that it names, by code, by the
    beginning of a code, or by name, as `--ignore` does.
    """
    return any(_silences(place, finding) for place in _places(finding))


def _places(finding: Finding) -> Iterator[Place]:
    """List the lines that may ask: of a repair of several lines those that name the attribute."""
    if finding.set_at is not None:
        yield finding.set_at
    if finding.place is None:
        return
    name, lines = re.escape(finding.subject.rpartition(".")[2]), finding.own_before.splitlines()
    naming = [offset for offset, line in enumerate(lines) if name and re.search(rf"\.{name}\b", line)]
    for offset in naming or [0]:
        yield replace(finding.place, line=finding.place.line + offset)


def _silences(place: Place, finding: Finding) -> bool:
    comment = _COMMENT.search(linecache.getline(place.file, place.line))
    if comment is None:
        return False
    if comment["list"] is None:
        return True
    names = [name.strip() for name in comment["names"].split(",")]
    return any(is_named(finding.rule, name) for name in names if name)
