"""A loss or a gradient was not finite."""

from rankevents import AT, mistakes

from dpdemo.ranks.events import NotFinite


def test_the_first_rank_and_step_are_named():
    (found,) = mistakes([NotFinite("gradient", 6, AT)], [NotFinite("loss", 4, AT, "inf")])
    assert found.text == "The loss was inf at step 4 on rank 1 alone, and the step was made with it"
    assert found.at == AT


def test_all_ranks_at_one_step_are_named_so():
    (found,) = mistakes([NotFinite("loss", 2, AT, "nan")], [NotFinite("loss", 2, AT, "nan")])
    assert found.text.startswith("The loss was nan at step 2 on all ranks")


def test_finite_numbers_are_right():
    assert mistakes([], []) == ()
