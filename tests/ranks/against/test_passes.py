"""The graph of a loss, as one process follows it to try what its terms weigh on the ranks."""

from types import SimpleNamespace

import torch
from torch.utils.data import DataLoader

from dpdemo.ranks.against.passes import Passes, _scale_terms
from dpdemo.ranks.against.rows import Pass
from dpdemo.ranks.against.settings import Settings
from dpdemo.ranks.against.state import State
from dpdemo.ranks.observe.losses import _reductions


def _weights(factors, loss_of):
    rows = torch.linspace(-1, 2, 12).reshape(4, 3).requires_grad_()
    loss = loss_of(rows)
    _scale_terms([node for node, *_ in _reductions(loss.grad_fn)], factors)
    loss.backward()
    return rows.detach(), rows.grad


def test_a_term_gets_its_factor_and_the_other_none():
    rows, gradient = _weights(
        (((4, 0.5),), ((4, 1.0),)), lambda rows: rows.square().mean() + 3 * rows.exp().sum()
    )
    assert torch.allclose(gradient, 2 * rows / 12 + 0.5 * 3 * rows.exp())


def test_a_term_gets_a_factor_for_the_rows_of_each_rank():
    parts = (((3, 0.5), (1, 4.0)), ((3, 1.0), (1, 1.0)))
    rows, gradient = _weights(parts, lambda rows: rows.exp().sum() + rows.square().mean())
    weight = torch.tensor([0.5, 0.5, 0.5, 4.0])[:, None]
    assert torch.allclose(gradient, rows.exp() + weight * 2 * rows / 12)


def test_a_term_that_counts_twice_is_left_alone():
    def twice(rows):
        term = rows.sum()
        return term + 2 * term

    _, gradient = _weights((((4, 0.5),),) * 2, twice)
    assert gradient.eq(3).all()


def test_a_step_may_take_a_batch_of_each_of_two_loaders():
    noted = []
    state = State(Settings("", 2), SimpleNamespace(write=noted.append, process=1))
    labelled, unlabelled = (Pass(DataLoader([1, 2, 3]), 1, f"train.py:{line}") for line in (3, 4))
    state.drawn, state.pass_ = {labelled: None, unlabelled: None}, unlabelled
    passes, loss = Passes(state), torch.ones(2, requires_grad=True).sum()
    passes.begin_backward(loss)
    state.drawn = {labelled: None}
    passes.begin_backward(loss)
    assert [(each.at, each.length) for each in noted] == [("train.py:3", 3), ("train.py:4", 3)]
    assert state.first_trained is unlabelled
