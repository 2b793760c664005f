"""Numbers that ranks drew are joined along the dimension in which one process draws more."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.ranks.against.draws import joined
from dpdemo.ranks.against.numbers import kept, tensor_of
from dpdemo.ranks.against.store import Kept


def together(name, parts, shape):
    data = joined(name, [kept(part) for part in parts], shape)
    return tensor_of(Kept(str(parts[0].dtype), shape, data)) if data else None


@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(0, 2))
def test_noise_is_joined_along_the_dimension_of_rows(sizes, dim):
    parts = [torch.randn([size if place == dim else 7 for place in range(3)]) for size in sizes]
    whole = torch.cat(parts, dim)
    assert torch.equal(together("randn", parts, tuple(whole.shape)), whole)


def test_equal_noise_of_all_ranks_is_drawn_for_each_of_them():
    part = torch.randn(3, 2)
    assert torch.equal(together("randn", [part, part], (6, 2)), torch.cat([part, part]))


@given(st.lists(st.integers(1, 5), min_size=2, max_size=4))
def test_each_row_is_mixed_with_the_row_of_its_own_rank(sizes):
    rows = [torch.randn(size, 3) for size in sizes]
    orders = [torch.randperm(size) for size in sizes]
    mixed = torch.cat([part[order] for part, order in zip(rows, orders, strict=True)])
    order = together("randperm", orders, (sum(sizes),))
    assert torch.equal(torch.cat(rows)[order], mixed)


@pytest.mark.parametrize("shape", [(3, 2), (5, 2), (6, 3)])
def test_numbers_that_do_not_grow_with_the_ranks_are_not_joined(shape):
    assert together("randn", [torch.randn(3, 2), torch.randn(3, 2)], shape) is None
