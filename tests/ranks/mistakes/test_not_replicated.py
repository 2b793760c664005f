"""A tensor that is declared to be the same on all ranks differs."""

from rankevents import AT, mistakes

from dpdemo.ranks.events import Replicated


def run(*sums_and_values):
    return mistakes(*([Replicated(AT, 1, (0, 1), total, values)] for total, values in sums_and_values))


def test_other_contents_are_named():
    (found,) = run((1, (0.5, 2.0)), (2, (0.25, 2.0)))
    assert found.text == "A tensor that is declared the same on ranks 0, 1 differs"
    assert found.at == AT


def test_round_off_is_right():
    assert run((1, (0.5,)), (2, (0.5000001,))) == ()


def test_equal_contents_are_right():
    assert run((1, (0.5,)), (1, (0.5,))) == ()
