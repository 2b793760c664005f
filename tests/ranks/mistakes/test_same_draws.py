"""A line drew the same random numbers on all ranks."""

from rankevents import AT, MADE, MODEL, mistakes, rows

from dpdemo.ranks.events import Drawn, Trained


def run(first, second, *, shape=(4, 8), sums=(1, 2), step=1, name="randn_like"):
    noted = []
    for drawn, total in zip((first, second), sums, strict=True):
        draws = [Drawn(AT, n, each, n * step, name, shape) for n, each in enumerate(drawn, 1)]
        noted.append([MADE, *rows(total), *draws, Trained(MODEL, 3, 3, 3, {"[4, 8] → [4, 1]": 3})])
    return mistakes(*noted)


def test_equal_noise_on_other_rows_is_a_note():
    (found,) = run((5, 6, 7), (5, 6, 7))
    assert found.text == "randn_like drew the same random numbers on all ranks in each of 3 calls"
    assert (found.at, found.kind) == (AT, "note")


def test_noise_of_its_own_is_right():
    assert run((5, 6, 7), (5, 8, 9)) == ()


def test_a_whole_batch_of_which_each_rank_takes_its_share_is_right():
    assert run((5, 6, 7), (5, 6, 7), shape=(8, 8)) == ()


def test_one_order_for_rows_of_their_own_is_right():
    assert run((5, 6, 7), (5, 6, 7), shape=(4,), name="randperm") == ()


def test_constants_and_single_draws_are_right():
    assert run((5, 5, 5), (5, 5, 5)) == ()
    assert run((5, 6), (5, 6)) == ()
