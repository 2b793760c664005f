"""`assert_no_pitfalls`: a check as a test, which fails with the findings."""

from typing import Any

from dpdemo.checking.engine import check
from dpdemo.results.check import CheckReport
from dpdemo.results.findings import SEVERITIES, Severity


def assert_no_pitfalls(
    model: Any, inputs: Any = None, *, fail_on: Severity = "error", **options: Any
) -> CheckReport:
    """Check a model as `dpdemo.check` does, and fail where something as bad as `fail_on` is found.

    Args:
        model: a module, or a function that builds one.
        inputs: a batch, [rows, ...], or whatever `dpdemo.check` takes for one.
        fail_on: the mildest severity that fails.
        options: the other arguments of `dpdemo.check`.

    Returns:
        The report of the check, which may hold milder findings.

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
            lines.append(f"{place}{finding.severity} {finding.code} {finding.name}: {finding.message}")
            lines += [f"  instead of: {finding.before}", f"  write:      {finding.after}"]
    if lines:
        raise AssertionError(
            f"{report.model} under DataParallel on {report.num_gpus} GPUs:\n" + "\n".join(lines)
        )
    return report
