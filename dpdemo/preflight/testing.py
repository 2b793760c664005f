"""`assert_no_pitfalls`: a check as a test, which fails with the findings."""

from typing import Any

from dpdemo.preflight.engine import check
from dpdemo.preflight.findings import SEVERITIES, CheckReport, Severity
from dpdemo.preflight.registry import find_rule


def assert_no_pitfalls(
    model: Any, inputs: Any = None, *, fail_on: Severity = "error", **options: Any
) -> CheckReport:
    """Check a model as `dpdemo.check` does, and fail where something as bad as `fail_on` is found.

    Raises:
        AssertionError: with a line for each finding, and its fix.

    """
    __tracebackhide__ = True  # pytest shows the test's own line
    report = check(model, inputs, **options)
    bad = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    lines = []
    for finding in report.findings:
        if finding.severity in bad:
            place = f"{finding.place}: " if finding.place else ""
            rule = find_rule(finding.code)
            lines.append(f"{place}{finding.severity} {finding.code} {rule.name}: {finding.message}")
            lines.append(f"  instead of: {rule.section('Before')}")
            lines.append(f"  write:      {rule.section('After')}")
    if lines:
        raise AssertionError(
            f"{report.model} under DataParallel on {report.num_gpus} GPUs:\n" + "\n".join(lines)
        )
    return report
