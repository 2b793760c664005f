"""A rank skipped a batch on which the others trained."""

from rankevents import AT, MADE, MODEL

from dpdemo.ranks.events import Skipped
from dpdemo.ranks.mistakes import find_mistakes


def run(first, second, *, had_forward=True):
    noted = [
        [MADE, *(Skipped(MODEL, number, AT, had_forward) for number in mine)] for mine in (first, second)
    ]
    return find_mistakes(dict(enumerate(noted)), were_stopped=True)


def test_a_batch_that_one_rank_skipped_is_named():
    (found,) = run([2], [2, 5])
    assert found.text == "Rank 1 made no backward pass for its call 5, unlike the others"
    assert found.at == AT


def test_a_batch_that_was_drawn_and_not_used_is_named():
    (found,) = run([3], [], had_forward=False)
    assert found.text == "Rank 0 drew a batch after its call 3 and did not use it, unlike the others"


def test_batches_that_all_skip_are_right():
    assert run([2, 4], [2, 4]) == ()
