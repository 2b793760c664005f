"""What a class or a file counts, before and after calls."""

import pytest

from dpdemo.checking.outer_state import grown_in_each


@pytest.mark.parametrize(
    ("single", "parallel", "times", "names"),
    [
        (({"n": 1}, {"n": 2}), ({"n": 2}, {"n": 6}), 4, ["n"]),
        (({"n": 1}, {"n": 33}), ({"n": 33}, {"n": 65}), 4, []),  # of samples
        (({"n": 1}, {"n": 1}), ({"n": 1}, {"n": 5}), 4, []),
        (({"n": 3}, {"n": 2}), ({"n": 2}, {"n": -2}), 4, []),
        (({"n": 1}, {"n": 2}), ({"n": 2}, {"n": 3}), 1, []),
    ],
)
def test_what_each_replica_makes_larger_by_as_much_as_a_plain_call_is_listed(single, parallel, times, names):
    assert [one.path for one in grown_in_each(single, parallel, times)] == names
