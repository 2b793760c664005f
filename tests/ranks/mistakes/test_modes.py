"""A rank trains in the mode of an evaluation, and others do not."""

from rankevents import AT, MODEL, TRAINED, mistakes

from dpdemo.ranks.events import Mode

EVALUATES = Mode(MODEL, 3, AT, is_train=False)


def test_a_rank_that_stays_in_the_mode_of_its_evaluation_is_named():
    (found,) = mistakes([*TRAINED, EVALUATES], TRAINED)
    assert found.text == "Rank 0 makes step 3 in eval() mode, unlike the others"
    assert found.at == AT


def test_one_mode_on_all_ranks_is_right():
    """As where BatchNorm is frozen."""
    assert mistakes([*TRAINED, EVALUATES], [*TRAINED, EVALUATES]) == ()
