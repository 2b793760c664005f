"""Numbers that ranks drew are joined along the dimension in which one process draws more."""

from collections import Counter
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sides import rows, side

from dpdemo.ranks.against.draws import _follow_numpy, _has_numbers, joined
from dpdemo.ranks.against.numbers import flat, kept, projected, tensor_of
from dpdemo.ranks.against.settings import Settings
from dpdemo.ranks.against.state import State
from dpdemo.ranks.against.store import Detail, Kept


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


def _one_process(batches):
    """Return the state of one process in a call whose inputs are these ranks' batches, in a mixed order."""
    state = State(Settings("", len(batches), is_replay=True), SimpleNamespace(process=1))
    details = dict(enumerate(Detail(inputs=tuple((projected(x), ()) for x in own)) for own in batches))
    events = {rank: side([], rows(1)[0]).event for rank in details}
    state.ranks = SimpleNamespace(
        owners=[*details], steps={(0, 1): events}, details=lambda *_: details, trained={1}, draws={}
    )
    state.counts["depth"] = 1
    return state


@pytest.mark.parametrize("many", [1, 2])
def test_numbers_of_a_model_follow_the_rows_of_its_inputs(many):
    crops = [[torch.randn(size, 5) for _ in range(many)] for size in (3, 2)]
    state, order = _one_process(crops), torch.randperm(5)
    whole = [torch.cat(each)[order] for each in zip(*crops, strict=True)]
    state.window.inputs = [(projected(x), ()) for x in whole]
    drawn = [torch.cat(own).square() for own in crops]  # one number a row, as a rank draws for its own crops
    places = state.order_in_call([len(each) for each in drawn])
    shape = (5 * many, 5)
    data = joined("rand", [kept(each) for each in drawn], shape, places)
    assert torch.equal(tensor_of(Kept("torch.float32", shape, data)), torch.cat(whole).square())


def test_numbers_keep_the_order_of_ranks_where_the_rows_are_not_the_inputs():
    state = _one_process([[torch.randn(3, 5)], [torch.randn(3, 5)]])
    state.window.inputs = [(projected(torch.randn(6, 5)), ())]
    assert state.order_in_call([3, 3]) is None
    assert state.order_in_call([7, 7]) is None


def _numpy_of(drawn):
    """Return NumPy's module as one process has it, and the state, where ranks drew these arrays."""
    state = State(Settings("", len(drawn), is_replay=True), SimpleNamespace(process=1))
    state.optimizers, module = [None], ModuleType("random")
    vars(module).update(
        {name: getattr(np.random, name) for name in ("Generator", "default_rng", "permutation")}
    )
    stores = [SimpleNamespace(read=lambda _, own=own: kept(torch.from_numpy(own))) for own in drawn]
    each = dict.fromkeys(range(len(drawn)), SimpleNamespace(stored=0))
    draws = SimpleNamespace(get=lambda *_: each)
    state.ranks = SimpleNamespace(
        owners=[*each], stores=stores, draws=draws, trained=set(), steps={}, details=Counter()
    )
    _follow_numpy(state, module)
    return module


def test_windows_that_numpy_draws_are_those_of_all_ranks():
    drawn = [np.array([5, 2, 9]), np.array([1, 7, 3])]
    rng = _numpy_of(drawn).default_rng(0)
    assert isinstance(rng, np.random.Generator)
    assert rng.integers(0, 10, 3).tolist() == [5, 2, 9, 1, 7, 3]
    assert isinstance(rng.random(), float)


def test_an_order_that_numpy_draws_is_of_each_ranks_own_rows():
    drawn = [np.array([2, 0, 1]), np.array([1, 0])]
    assert _numpy_of(drawn).permutation(5).tolist() == [2, 0, 1, 4, 3]


def test_a_tensor_without_memory_is_not_read():
    assert not _has_numbers(torch.randint(0, 2, (3, 2), device="meta"))
    assert _has_numbers(torch.randint(0, 2, (3, 2)))
    assert len(flat(torch.zeros(3, device="meta"))) == 0
