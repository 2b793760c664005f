"""What a wrapper of the user's own pads behind shorter results is no difference."""

import torch

from dpdemo.checking.observing.padded import without_padding

SHORT = [torch.ones(2, 3), torch.ones(1, 2)]


def filled_with(value):
    """Three rows of three, of which the last has a value behind the two that a replica gives."""
    whole = torch.ones(3, 3)
    whole[2, 2] = value
    return whole


def test_padding_is_zero_in_both_results_and_all_else_stays():
    one, other = without_padding(filled_with(5.0), filled_with(9.0), SHORT, 0)
    assert torch.equal(one, filled_with(0.0))
    assert torch.equal(other, filled_with(0.0))
