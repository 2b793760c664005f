"""A checkpoint keeps one rank's value of a key that differs between ranks."""

from rankevents import AT, mistakes

from dpdemo.ranks.events import Checkpoint


def run(first, second):
    return mistakes([Checkpoint(AT, 1, "/saved", first)], [Checkpoint(AT, 1, "/saved", second)])


def test_values_that_differ_under_one_key_are_named():
    (found,) = run({"step": 1, "random": 2}, {"step": 1, "random": 3})
    assert found.text == "The checkpoint keeps one rank's value of `random`, which differs between ranks"
    assert found.at == AT


def test_equal_values_are_right():
    assert run({"step": 1}, {"step": 1}) == ()


def test_a_key_for_each_rank_is_right():
    assert run({"random0": 1}, {"random1": 2}) == ()
