"""What a class or a file counts, before and after calls."""

import pytest
import torch
from torch import nn

from dpdemo.checking.outer_state import grown_in_each, sizes_outside


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


def test_what_a_library_holds_is_not_looked_at():
    """A method that names torch reaches all of it, some of which warns when it is asked for its class."""

    class Named(nn.Module):
        def forward(self, x):
            return torch.relu(x)

    assert not [name for name in sizes_outside(Named()) if name.startswith("torch")]
