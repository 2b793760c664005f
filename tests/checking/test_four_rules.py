"""The four rules of this room, each held by a test."""

import ast
from dataclasses import fields
from pathlib import Path

import pytest
from cases import TRIGGERS
from fastpart import mostly_slow

from dpdemo.checking import check, registry
from dpdemo.checking.evidence import (
    Call,
    Event,
    Evidence,
    Leaf,
    Probe,
    Replica,
    Scan,
    Single,
    StateChange,
    Value,
    Written,
)
from dpdemo.checking.precedence import findings_of
from dpdemo.checking.registry import rule_of, rules
from dpdemo.checking.repairs import Repair
from dpdemo.results.findings import Place

HOME = Path(registry.__file__).parent
PURE = {"errors", "evidence", "questions", "registry", "repairs", "rules"}
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


def test_a_rule_can_be_tested_on_evidence_that_was_written_by_hand():
    place = Place("net.py", 7, "forward", "self.steps += 1")
    zero, single = Value("int", text="0"), Value("int", text="1")
    change = StateChange(
        "steps", "attribute", zero, single, zero, True, False, False, written=Written(place=place)
    )
    leaf = Leaf("x", "Tensor", (8, 4))
    call = Call(2, 0, (leaf,), (Replica(0, (leaf,), (leaf,)), Replica(1, (leaf,), (leaf,))))
    probe = Probe(8, "train", True, Single((leaf,)), (call,), changes=(change,))
    (found,) = rule_of("DP301").findings(Evidence(2, Scan("Net"), (probe,)))
    assert (found.subject, found.place, found.message) == (
        "steps", place, "`steps` goes from 0 to 1 on one GPU, and stays 0 under DataParallel",
    )  # fmt: skip


def test_evidence_holds_values_and_no_sentences():
    kinds = {field.name: field.type for field in fields(StateChange)}
    assert [kinds[name] for name in ("before", "single", "parallel")] == [Value] * 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", mostly_slow(TRIGGERS[::7], 6), ids=str)
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


def test_a_hidden_consequence_does_not_depend_on_the_order_of_rules():
    event = Event("backward", 0)
    probe = Probe(8, "train", True, Single(), (Call(2, 0, (), events=(event,)),))
    evidence = Evidence(2, Scan("Net"), (probe,))
    assert findings_of(evidence, rules()) == findings_of(evidence, tuple(reversed(rules())))
