"""A comment in the user's code that silences rules on its line: `# dpdemo: ignore[DP302]`."""

import linecache
import re

from dpdemo.preflight.findings import Finding

_COMMENT = re.compile(r"#\s*dpdemo:\s*ignore(?:\[(?P<codes>[\w\s,-]+)\])?")


def is_silenced(finding: Finding) -> bool:
    """Whether the line that a finding points to asks not to be told."""
    if finding.place is None:
        return False
    comment = _COMMENT.search(linecache.getline(finding.place.file, finding.place.line))
    if comment is None:
        return False
    codes = (comment["codes"] or "DP").split(",")
    return any(finding.code.startswith(code.strip().upper()) for code in codes)
