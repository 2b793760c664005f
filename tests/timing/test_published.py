"""The method against published steps: the error table of docs/speed-up.md, measured again."""

from pathlib import Path

import pytest
from published import FOUND_LATER, HELD_OUT, TRUTH, compared, outcome, table

from dpdemo.timing.predict import METHOD_ERROR

DOCS = Path(__file__).parent.parent.parent / "docs" / "speed-up.md"


@pytest.fixture(scope="module")
def truth():
    return compared(TRUTH)


@pytest.fixture(scope="module")
def held_out():
    return compared(HELD_OUT)


def test_no_error_on_the_published_steps_exceeds_what_the_intervals_allow_for(truth):
    assert max(abs(found.error) for found in truth) <= METHOD_ERROR


def test_the_mean_error_on_the_published_steps_has_not_grown(truth):
    assert sum(abs(found.error) for found in truth) / len(truth) <= 0.025


def test_every_published_step_lies_inside_its_interval(truth):
    assert [found.row for found in truth if not found.is_inside] == []


@pytest.fixture(scope="module")
def found_later():
    return compared(FOUND_LATER)


@pytest.mark.parametrize("path", [TRUTH, HELD_OUT, FOUND_LATER], ids=["truth", "held out", "found later"])
def test_every_published_step_is_on_the_right_side_of_the_break_even(path):
    assert [found.row for found in compared(path) if not found.is_on_right_side] == []


def test_no_verdict_on_a_published_step_is_wrong(truth, held_out, found_later):
    for found in (*truth, *held_out, *found_later):
        said = found.predicted.verdict
        assert said == "cannot tell" or (said == "pays") == (found.measured > 1), found.row


def test_the_steps_that_were_held_out_are_predicted_as_well_as_claimed(held_out):
    errors = [abs(found.error) for found in held_out]
    assert sum(errors) / len(errors) <= 0.10
    assert sum(found.is_inside for found in held_out) >= 0.8 * len(held_out)


def test_steps_found_when_the_method_was_finished_are_predicted_as_well_as_claimed(found_later):
    errors = [abs(found.error) for found in found_later]
    assert sum(errors) / len(errors) <= 0.05
    assert sum(found.is_inside for found in found_later) >= 0.9 * len(found_later)


def test_the_docs_show_the_tables_that_are_measured(truth, held_out, found_later):
    text = DOCS.read_text()
    for rows in (truth, held_out, found_later):
        assert table(rows) in text
        assert outcome(rows) in text
