"""Buffers differ between ranks."""

from rankevents import MODEL, TRAINED, mistakes

from dpdemo.ranks.events import Buffers


def run(*values):
    return mistakes(*([*TRAINED, Buffers(MODEL, each)] for each in values))


def test_buffers_that_each_rank_made_of_its_own_rows_are_a_note():
    (found,) = run({"mean": (1.0, 2.0), "scale": (3.0,)}, {"mean": (1.0, 2.5), "scale": (3.0,)})
    assert (found.text, found.kind) == ("Buffers differ between ranks at the end: `mean`", "note")


def test_equal_buffers_and_rounding_are_right():
    assert run({"mean": (1.0,)}, {"mean": (1.00001,)}) == ()
    assert run({}, {}) == ()
