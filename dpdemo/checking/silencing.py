"""A comment in the user's code that silences rules on its line: `# dpdemo: ignore[DP302]`."""

import re

from dpdemo.checking.registry import is_named
from dpdemo.results.findings import Finding, Place

_COMMENT = re.compile(r"#\s*dpdemo:\s*ignore(?P<list>\[(?P<names>[^\]]*)\])?")


def is_silenced(finding: Finding) -> bool:
    """Return whether the line that a finding points to asks for silence, or the one that sets its attribute.

    A comment without brackets silences every rule; one with brackets those that it names, by code, by the
    beginning of a code, or by name, as `--ignore` does.
    """
    places = (place for place in (finding.set_at, finding.place) if place is not None)
    return any(_silences(place, finding) for place in places)


def _silences(place: Place, finding: Finding) -> bool:
    comment = _COMMENT.search(place.code)
    if comment is None:
        return False
    if comment["list"] is None:
        return True
    names = [name.strip() for name in comment["names"].split(",")]
    return any(is_named(finding.rule, name) for name in names if name)
