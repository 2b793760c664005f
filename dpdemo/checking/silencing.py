"""A comment in the user's code that silences rules on its line: `# dpdemo: ignore[DP302]`."""

import linecache
import re

from dpdemo.checking.registry import is_named
from dpdemo.reports.check import Finding

_COMMENT = re.compile(r"#\s*dpdemo:\s*ignore(?P<list>\[(?P<names>[^\]]*)\])?")


def is_silenced(finding: Finding) -> bool:
    """Return whether the line that a finding points to asks for silence.

    A comment without brackets silences every rule; one with brackets those that it names, by code, by the
    beginning of a code, or by name, as `--ignore` does.
    """
    if finding.place is None:
        return False
    comment = _COMMENT.search(linecache.getline(finding.place.file, finding.place.line))
    if comment is None:
        return False
    if comment["list"] is None:
        return True
    names = [name.strip() for name in comment["names"].split(",")]
    return any(is_named(finding.rule, name) for name in names if name)
