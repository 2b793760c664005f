"""Losses inside forward, against the loss of the whole batch on one device."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from dpdemo import LossParts, WeightedDataParallel, loss_parts
from dpdemo.virtual import virtual_gpus

IGNORED = -100


class Tagger(nn.Module):
    """Returns its loss over valid tokens, as sum and count."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x, labels):
        logits = self.linear(x)
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return loss_parts(losses, labels.flatten() != IGNORED)


@settings(max_examples=80)
@given(
    rows=st.integers(1, 12),
    weights=st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any),
    seed=st.integers(0, 99),
)
def test_sums_and_counts_are_one_gpus_loss_for_any_split_and_any_padding(rows, weights, seed):
    torch.manual_seed(seed)
    model, x = Tagger().double(), torch.randn(rows, 5, 3).double()
    labels = torch.randint(4, (rows, 5)).masked_fill(torch.rand(rows, 5) < 0.5, IGNORED)
    labels[0, 0] = 1
    alone = F.cross_entropy(model.linear(x).flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
    expected = torch.autograd.grad(alone, list(model.parameters()))
    with virtual_gpus(len(weights)):
        wrapper = WeightedDataParallel(model.cuda(), weights=weights)
        parts = wrapper(x.cuda(), labels.cuda())
        assert isinstance(parts, LossParts)
        loss = parts.mean()
        loss.backward()
        torch.testing.assert_close(loss.detach().cpu(), alone.detach())
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad.cpu(), gradient)


def test_losses_may_be_weighted():
    parts = loss_parts(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 0.0, 0.5]))
    assert (parts.total.item(), parts.number.item(), parts.mean().item()) == (3.0, 1.5, 2.0)


def test_a_masked_loss_may_be_anything():
    parts = loss_parts(torch.tensor([1.0, torch.nan]), torch.tensor([True, False]))
    assert parts.mean() == 1


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_parts_have_a_dimension_to_be_gathered_along(dim):
    parts = loss_parts(torch.ones(3), dim=dim)
    assert parts.total.shape == parts.number.shape == (1,) * (dim + 1)
    assert parts.mean().shape == ()
