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


def test_a_call_in_which_two_optimizers_step_has_its_rows_in_both_windows():
    state = State(Settings("", 2), SimpleNamespace(write=lambda _: None, process=1))
    passes, model = Passes(state), torch.nn.Linear(3, 1)
    passes.begin_forward(model, (torch.ones(2, 3),), {})
    passes.begin_forward(model, (torch.ones(4, 3),), {})
    state.counts["depth"] = 1  # the second call is under way when the first optimizer makes its step
    state.window.is_stepped = True
    passes.begin_backward(model(torch.ones(4, 3)).sum())
    assert (state.window.rows, state.window.calls) == ([4], [(4, 3)])
    assert [len(rows) for rows, _ in state.window.inputs] == [4]
    state.counts["depth"], state.window.is_stepped = 0, True
    state.renew_window()
    assert (state.window.rows, state.window.inputs) == ([], [])


def test_the_step_that_comes_next_may_be_another_optimizers():
    state = State(Settings("", 1, is_replay=True), SimpleNamespace(process=1))
    keys = [(1, 1), (0, 1), (1, 2), (0, 2), (1, 9)]
    state.ranks = SimpleNamespace(steps={key: {0: key} for key in keys})
    coming = []
    for number in (1, 0, 1, 0, 1):
        coming += state.coming()
        state.steps[number] += 1
    assert coming == keys[:4]  # the ninth step is not the third
