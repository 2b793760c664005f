"""The four rules of this room, each held by a test."""

import ast
import itertools
from dataclasses import fields, replace
from pathlib import Path

import pytest
from cases import TRIGGERS
from fastpart import mostly_slow

from dpdemo.checking import check, registry
from dpdemo.checking.engine import judge
from dpdemo.checking.evidence import (
    Call,
    Event,
    Evidence,
    Leaf,
    Probe,
    RaisedError,
    Replica,
    Scan,
    Single,
    StateChange,
    Value,
    WriteStatement,
)
from dpdemo.checking.precedence import findings_of
from dpdemo.checking.registry import SYMPTOMS, rule_of, rules
from dpdemo.checking.repairs import Hit, Repair
from dpdemo.results.findings import Place

HOME = Path(registry.__file__).parent
PURE = {"errors", "evidence", "fills", "questions", "registry", "repairs", "rules"}
READERS = {"ast", "inspect", "linecache", "tokenize"}


def imports_of(path):
    """The modules that a file imports, as a list of names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", sorted((HOME / "rules").glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_rules_import_nothing_that_opens_a_file(path):
    ours = {name.split(".")[2] for name in imports_of(path) if name.startswith("dpdemo.checking.")}
    assert ours <= PURE
    assert not imports_of(path) & {*READERS, "torch", "pathlib", "os"}
    assert "open(" not in path.read_text()


def test_one_file_reads_the_users_code():
    readers = {
        path.stem
        for path in HOME.rglob("*.py")
        if "linecache" in imports_of(path) or "getsource" in path.read_text()
    }
    assert readers == {"source"}


def counting_probe():
    """A probe of a model whose count of calls is lost, as evidence that was written by hand."""
    place = Place("net.py", 7, "forward", "self.steps += 1")
    zero, single = Value("int", text="0"), Value("int", text="1")
    change = StateChange(
        "steps", "attribute", zero, single, zero, True, False, False, written=WriteStatement(place=place)
    )
    leaf = Leaf("x", "Tensor", (8, 4))
    call = Call(2, 0, (leaf,), (Replica(0, (leaf,), (leaf,)), Replica(1, (leaf,), (leaf,))))
    return Probe(8, "train", True, Single((leaf,)), (call,), changes=(change,))


def test_a_rule_can_be_tested_on_evidence_that_was_written_by_hand():
    probe = counting_probe()
    (found,) = rule_of("DP301").look(Evidence(2, Scan("Net"), (probe,)))
    assert (found.subject, found.place, found.message) == (
        "steps", probe.changes[0].written.place,
        "`steps` goes from 0 to 1 on one GPU, and stays 0 under DataParallel",
    )  # fmt: skip


def test_evidence_holds_values_and_no_sentences():
    kinds = {field.name: field.type for field in fields(StateChange)}
    assert [kinds[name] for name in ("before", "single", "parallel")] == [Value] * 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", mostly_slow(TRIGGERS[::20], 6), ids=str)
def test_findings_do_not_depend_on_repairs(case, monkeypatch):
    def told():
        report = check(case.factory, **case.options)
        return [
            (finding.code, finding.severity, finding.subject, finding.message, finding.place)
            for finding in report.findings
        ]

    with_repairs = told()
    monkeypatch.setattr(registry, "repair_of", lambda *_: Repair())
    assert told() == with_repairs


def fixed(code, *found):
    """The rule of a code, with findings that are given."""
    return replace(rule_of(code), look=lambda _: found)


CAUSE, SYMPTOM = Hit("h0", "a cause"), Hit("h0", "a symptom", symptoms=("argument h0",))


@pytest.mark.parametrize(
    ("cause", "symptom", "codes"),
    [
        (CAUSE, SYMPTOM, {"DP210", "DP701"}),
        (replace(CAUSE, explains=("argument h0",)), SYMPTOM, {"DP210"}),
        (replace(CAUSE, explains=("argument x",)), SYMPTOM, {"DP210", "DP701"}),
        (CAUSE, replace(SYMPTOM, symptoms=("difference",)), {"DP210"}),
        (replace(CAUSE, severity="info"), replace(SYMPTOM, symptoms=("difference",)), {"DP210", "DP701"}),
        (
            replace(CAUSE, severity="info", explains=("raises",)),
            replace(SYMPTOM, symptoms=("raises",)),
            {"DP210"},
        ),
    ],
)
def test_a_symptom_is_dropped_that_another_finding_explains(cause, symptom, codes):
    chosen = (fixed("DP701", symptom), fixed("DP210", cause), *(fixed(known.code) for known in rules()))
    found = findings_of(Evidence(2, Scan("Net"), ()), chosen)
    assert {finding.code for finding in found.merged} == codes


def test_a_symptom_stays_explained_where_its_cause_is_not_asked_for():
    event = Event("backward", 0)
    raised = RaisedError("replica", "ValueError", "no", 0)
    call = Call(2, 0, (), (Replica(0, raised=raised),), events=(event,))
    evidence = Evidence(2, Scan("Net"), (Probe(8, "train", False, Single(), (call,)),))
    codes = lambda *chosen: [one.code for one in findings_of(evidence, chosen).merged]  # noqa: E731
    assert codes(*rules()) == codes(rule_of("DP311")) == ["DP311"]
    assert codes(rule_of("DP390")) == []


@pytest.mark.parametrize("known", rules(), ids=lambda known: known.code)
def test_a_rule_explains_what_a_rule_can_be_about(known):
    assert {*known.symptoms, *known.explains} <= {*SYMPTOMS}
    assert not {*known.symptoms} & {*known.explains}


def test_a_hidden_consequence_does_not_depend_on_the_order_of_rules():
    event = Event("backward", 0)
    probe = Probe(8, "train", True, Single(), (Call(2, 0, (), events=(event,)),))
    evidence = Evidence(2, Scan("Net"), (probe,))
    assert findings_of(evidence, rules()) == findings_of(evidence, tuple(reversed(rules())))


def failing(known, number):
    """A rule that raises after so many of its findings."""

    def look(evidence):
        yield from itertools.islice(known.look(evidence), number)
        raise ZeroDivisionError("a bug of ours\nin two lines")

    return replace(known, look=look)


@pytest.mark.parametrize("number", [0, 1])
def test_a_rule_that_raises_becomes_a_note_with_its_name_and_keeps_what_it_found(number):
    def report_with(change):
        chosen = tuple(change(known) if known.code == "DP301" else known for known in rules())
        return judge(evidence, chosen)

    evidence = Evidence(2, Scan("Net"), (counting_probe(),))
    whole, hurt = report_with(lambda known: known), report_with(lambda known: failing(known, number))
    assert ("DP301" in hurt.codes) == (number == 1)
    assert set(hurt.codes) | {"DP301"} == set(whole.codes)
    (note,) = (note for note in hurt.notes if note not in whole.notes)
    assert note.startswith(
        "rule DP301 (lost-state) was not applied, because it raised ZeroDivisionError: a bug of ours; "
    )


def test_no_single_rule_can_end_the_report():
    evidence = Evidence(2, Scan("Net"), (counting_probe(),))
    for known in rules():
        chosen = (*(each for each in rules() if each != known), failing(known, 0))
        report = judge(evidence, chosen)
        assert [note for note in report.notes if note.startswith(f"rule {known.code} ({known.name}) ")]
        if known.code != "DP301":
            assert "DP301" in report.codes
