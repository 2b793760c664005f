"""What one device has where replicas' results are too short to be joined, and what a wrapper pads there."""

import pytest
import torch

from dpdemo.checking.padded import fillings, without_padding
from dpdemo.checking.rewriting.padding import Ragged, padded_before_gather

SHORT = [torch.ones(2, 3), torch.ones(1, 2)]


def filled_with(value, dtype=torch.float32):
    """Three rows of three, of which the last has a value behind the two that a replica gives."""
    whole = torch.ones(3, 3, dtype=dtype)
    whole[2, 2] = value
    return whole


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (-1.0, torch.float32, "-1.0"),
        (7, torch.int64, "7"),
        (True, torch.bool, "True"),
        (float("-inf"), torch.float32, 'float("-inf")'),
    ],
)
def test_the_value_of_one_device_is_told_as_code(value, dtype, text):
    outputs = [{"y": one.to(dtype)} for one in SHORT]
    assert list(fillings({"y": filled_with(value, dtype)}, outputs, 0)) == [("['y']", text)]


def test_several_values_are_no_filling():
    whole = torch.arange(12.0).view(3, 4)
    assert list(fillings(whole, [torch.ones(2, 3), torch.ones(1, 2)], 0)) == [("", "")]


def test_sparse_results_have_no_filling():
    whole = filled_with(0.0).to_sparse()
    assert list(fillings(whole, [one.to_sparse() for one in SHORT], 0)) == []


def test_parts_that_fit_or_do_not_make_up_the_batch_have_no_filling():
    assert list(fillings(torch.ones(3, 3), [torch.ones(2, 3), torch.ones(1, 3)], 0)) == []
    assert list(fillings(torch.ones(4, 3), SHORT, 0)) == []
    assert list(fillings(torch.ones(3, 2), SHORT, 0)) == []


@pytest.mark.parametrize(
    ("filling", "code"),
    [
        ("-1.0", "value=-1.0)"),
        ("0.0", "one.size(1)))"),
        ("", "let nothing read them"),
        ("True", "value=True)"),
    ],
)
def test_a_wrapper_pads_with_what_one_device_has(filling, code):
    repair = padded_before_gather({"": Ragged(1, 2, (3, 2))}, {"": filling})
    assert code in repair.after
    known = {"nn": torch.nn, "model": torch.nn.Linear(1, 1)}
    exec(repair.after, known)  # noqa: S102 - our own code
    assert isinstance(known["model"], torch.nn.DataParallel)


def test_what_was_padded_is_zero_in_both_results_and_all_else_stays():
    one, other = without_padding(filled_with(5.0), filled_with(9.0), SHORT, 0)
    assert torch.equal(one, filled_with(0.0))
    assert torch.equal(other, filled_with(0.0))
