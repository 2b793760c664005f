"""The ranks read other numbers at one line, and then did not make the same collectives."""

from rankevents import AT

from dpdemo.ranks.events import Failure, Read
from dpdemo.ranks.mistakes import find_mistakes


def run(first, second, how="bool", *, were_stopped=True, more=()):
    noted = [
        [Read(AT, n, value, n, how, True) for n, value in enumerate(values, 1)] for values in (first, second)
    ]
    return find_mistakes({0: [*noted[0], *more], 1: noted[1]}, were_stopped=were_stopped)


def test_the_branch_that_one_rank_took_is_named():
    (found,) = run((0, 0, 0), (0, 0, 1))
    assert found.text == "The ranks read other numbers here just before, False on rank 0, True on rank 1"
    assert (found.at, found.kind) == (AT, "mistake")


def test_a_loss_that_always_differs_is_a_note():
    (found,) = run((1.5, 2.5), (3.5, 0.5), "float")
    assert found.kind == "note"


def test_ranks_that_came_to_their_end_are_right():
    assert run((0, 1), (1, 0), were_stopped=False) == ()


def test_ranks_that_failed_have_an_error_to_read():
    assert run((0, 0), (0, 1), more=[Failure("ValueError", AT)]) == ()


def test_equal_numbers_are_right():
    assert run((0, 1), (0, 1)) == ()
