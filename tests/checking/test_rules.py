"""Each rule finds its pitfall, names its cause, and finds nothing in the fixed twin."""

import json
import re
import warnings
from functools import cache
from pathlib import Path

import pytest
from cases import TRIGGERS, TWINS
from fastpart import mostly_slow
from putin import after_the_call, is_after_the_call, repaired

from dpdemo.checking import check
from dpdemo.checking.registry import SECTIONS, rules


@cache
def report_on(case):
    """Check a case once: its findings are read twice. No rule may fail on it."""
    report = check(case.factory, **case.options)
    assert not any("was not applied" in note for note in report.notes), report.notes
    return report


GOLDEN = Path(__file__).parent / "golden.json"


def outline(case):
    """The findings of a case: code, severity, subject and the text of the user's line."""
    return sorted(
        [
            finding.code,
            finding.severity,
            re.sub(r"^.*[\\/](\w+\.py):\d+$", r"\1", finding.subject),
            finding.place.code if finding.place else "",
        ]
        for finding in report_on(case).findings
    )


def name_of(case):
    return f"{'trigger' if case in TRIGGERS else 'twin'} {case}"


@cache
def golden():
    """The findings of before: `python tests/checking/test_rules.py` writes them; look at what changes."""
    return json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("case", mostly_slow(TRIGGERS, 3), ids=str)
def test_a_rule_finds_its_pitfall_once_and_names_the_cause(case, tmp_path, monkeypatch):
    """Causes hide their consequences, and printed repairs work as they are."""
    report = report_on(case)
    messages = [finding.message for finding in report.findings if finding.code == case.code]
    assert messages, f"only {report.codes}"
    assert any(all(word in message for word in case.says) for message in messages), messages
    told = {finding.code for finding in report.findings if finding.severity != "info"}
    assert told <= {case.code, *case.also}, [(finding.code, finding.message) for finding in report.findings]
    assert outline(case) == golden().get(name_of(case), [])
    repairs = [text for finding in report.findings for text in (finding.before, finding.after)]
    assert max(text.count("\n") for text in repairs) < 8
    for finding in report.findings:
        if not finding.is_example and finding.severity != "info":
            factory = repaired(case, finding, tmp_path, monkeypatch)
            told = check(factory, **case.options).findings
            left = [each.message for each in told if each.code == finding.code and each.severity != "info"]
            assert finding.message not in left, finding.after
            if is_after_the_call(finding):
                left, alone = after_the_call(case, finding)
                assert left == alone


@pytest.mark.parametrize("case", mostly_slow(TWINS, 3), ids=str)
def test_no_rule_finds_anything_in_the_fixed_twin(case):
    report = report_on(case)
    found = [
        finding for finding in report.findings if finding.severity != "info" or finding.code == case.code
    ]
    notes = {case.code} & set(case.also)  # the rule itself may leave a note, and no more
    left = [
        finding
        for finding in found
        if finding.code not in case.also or (finding.code in notes and finding.severity != "info")
    ]
    assert [(finding.code, finding.message) for finding in left] == []
    assert outline(case) == golden().get(name_of(case), [])


@pytest.mark.parametrize("known", rules(), ids=lambda known: known.code)
def test_every_rule_has_a_trigger_and_a_twin(known):
    assert known.code in {case.code for case in TRIGGERS}
    assert known.code in {case.code for case in TWINS}


@pytest.mark.parametrize("known", rules(), ids=lambda known: known.code)
def test_every_rule_has_a_whole_page(known):
    assert known.title.endswith(".")
    assert [name for name, _ in known.page] == list(SECTIONS)
    assert all(text.strip() for _, text in known.page)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    rows = {name_of(case): outline(case) for case in (*TRIGGERS, *TWINS)}
    lines = [f" {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items() if row]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
