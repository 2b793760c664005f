"""A GradScaler left a step out on some ranks only."""

from rankevents import AT, MODEL, TRAINED, mistakes

from dpdemo.ranks.events import StepLeftOut


def test_the_first_step_that_one_rank_left_out_is_named():
    left = [StepLeftOut(MODEL, step, AT) for step in (1, 3, 4)]
    (found,) = mistakes([*TRAINED, left[0]], [*TRAINED, *left])
    assert (found.text, found.at) == ("The GradScaler left step 3 out on rank 1 alone", AT)


def test_steps_that_all_ranks_left_out_are_right():
    left = StepLeftOut(MODEL, 1, AT)
    assert mistakes([*TRAINED, left], [*TRAINED, left]) == ()
