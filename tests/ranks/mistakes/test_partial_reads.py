"""A number was read of a DTensor that is yet to be reduced."""

from rankevents import AT, mistakes

from dpdemo.ranks.events import Read


def run(*values, is_partial=True):
    return mistakes(*([Read(AT, 1, value, 0, "float", True, is_partial)] for value in values))


def test_parts_that_differ_are_named():
    (found,) = run(2.0, 3.0)
    assert found.text.endswith("the rank's own part, 2 on rank 0, 3 on rank 1")
    assert found.at == AT


def test_equal_parts_are_right():
    assert run(2.0, 2.0) == ()


def test_whole_numbers_that_differ_are_right():
    assert run(2.0, 3.0, is_partial=False) == ()
