"""The baseline file of `check`: findings listed in it are not reported again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpdemo.errors import UsageError
from dpdemo.files import read_json, replacing
from dpdemo.results.check import CheckReport
from dpdemo.results.findings import Finding

SCHEMA = "dpdemo.baseline/1"


def without_known(report: CheckReport, path: Path) -> CheckReport:
    """Remove the findings in a baseline from a report; write the baseline first if it does not exist.

    Args:
        report: the findings.
        path: the baseline's file. A finding is known by its rule, its file and its subject, not by its line,
            which moves with every edit above it.

    Raises:
        UsageError: if the file is not a baseline.
        RunError: if it cannot be written.

    """
    if not path.exists():
        _write(report, path)
    known = _read(path)
    new = tuple(finding for finding in report.findings if _key(finding) not in known)
    return replace(report, findings=new, known=len(report.findings) - len(new))


def _key(finding: Finding) -> tuple[str, str, str]:
    return finding.code, (finding.file or "").replace("\\", "/"), finding.subject


def _write(report: CheckReport, path: Path) -> None:
    names = ("code", "file", "subject")
    found = [dict(zip(names, key, strict=True)) for key in sorted({_key(entry) for entry in report.findings})]
    with replacing(path) as file:
        file.write(json.dumps({"schema": SCHEMA, "findings": found}, indent=1) + "\n")


def _read(path: Path) -> set[tuple[str, str, str]]:
    try:
        found: Any = read_json(path)
        if found["schema"] != SCHEMA:
            raise UsageError(f"expected schema {SCHEMA}, got {found['schema']!r}", place=str(path))
        return {(entry["code"], entry["file"], entry["subject"]) for entry in found["findings"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"expected a baseline of dpdemo check, got {type(error).__name__}: {error}",
            place=str(path),
            hint="delete it: the next check writes a new one",
        ) from error
