"""Mistakes as such: none can fail, each has a page and tests, and the table of the docs is theirs."""

import re
import runpy
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankevents import EVENTS, MADE

from dpdemo.ranks import mistakes as package
from dpdemo.ranks.events import Event
from dpdemo.ranks.mistakes import detectors, find_mistakes
from dpdemo.ranks.mistakes.evidence import Evidence
from dpdemo.ranks.mistakes.registry import Detector

HERE = Path(__file__).parent
DOCS = HERE.parent.parent / "docs" / "ranks.md"
ROWS = re.compile(r"(?<=\| mistake \| seen in \|\n\|---\|---\|\n)(\|.*\|\n)+")
NOT_MISTAKES = {"__init__", "registry", "evidence"}


def table():
    """The rows of docs/ranks.md: a mistake, and the evidence."""
    return "".join(f"| {each.summary()} | {each.section('Seen in')} |\n" for each in detectors())


@given(st.dictionaries(st.integers(0, 2), st.lists(EVENTS, max_size=8), min_size=2))
def test_no_detector_raises_on_any_events(events):
    for detector in detectors():
        list(detector.find(Evidence(events)))


@given(EVENTS)
def test_an_event_is_read_as_it_was_written(event):
    assert repr(Event.from_line(event.to_line())) == repr(event)  # NaN differs from itself


def test_a_detector_that_fails_costs_a_note_with_its_name(monkeypatch):
    def find(_):
        raise ZeroDivisionError("no ranks")

    broken = Detector("broken", "Broken.", find)
    monkeypatch.setattr(package, "detectors", lambda: (broken, *detectors()))
    (note,) = find_mistakes({0: [MADE], 1: [MADE]})
    assert note.kind == "note"
    assert note.text == "`broken` could not be judged: ZeroDivisionError: no ranks"


@pytest.mark.parametrize("detector", detectors(), ids=lambda each: each.name)
def test_a_mistake_has_a_page_and_a_test_of_its_name(detector):
    assert detector.summary()
    assert detector.section("Seen in")
    assert detector.section("Instead")
    assert (HERE / "mistakes" / f"test_{detector.name.replace('-', '_')}.py").exists()


def cases(path):
    """Yield the tests of a file, each as often as it has parameters."""
    for name, test in runpy.run_path(path).items():
        if name.startswith("test_"):
            marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
            names, values = marks[0].args if marks else ((), [()])
            for case in values:
                yield partial(test, case) if isinstance(names, str) else partial(test, *case)


@pytest.mark.parametrize("detector", detectors(), ids=lambda each: each.name)
def test_its_tests_have_events_with_the_mistake_and_without(detector, monkeypatch):
    found, judge = set(), Detector.judge

    def noted(self, evidence):
        mistakes = judge(self, evidence)
        found.update({bool(mistakes)} if self.name == detector.name else ())
        return mistakes

    monkeypatch.setattr(Detector, "judge", noted)
    for case in cases(HERE / "mistakes" / f"test_{detector.name.replace('-', '_')}.py"):
        case()
    assert found == {True, False}


def test_each_file_holds_one_mistake():
    files = {path.stem for path in Path(package.__file__).parent.glob("*.py")} - NOT_MISTAKES
    assert {each.name.replace("-", "_") for each in detectors()} == files


def test_the_table_of_the_docs_is_that_of_the_pages():
    found = ROWS.search(DOCS.read_text())
    assert found is not None
    assert found[0] == table(), "renew it: PYTHONPATH=tests:tests/ranks python tests/ranks/test_mistakes.py"


if __name__ == "__main__":
    DOCS.write_text(ROWS.sub(lambda _: table(), DOCS.read_text()))
