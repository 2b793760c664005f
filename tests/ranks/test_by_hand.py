"""Gradients that ranks reduce themselves, under no wrapper."""

import torch
from torch import nn

from dpdemo.ranks.observe.reductions import Optimized, Reductions


def step(reduced, parameter):
    """Make the first step of an optimizer, and count whether its gradient was reduced."""
    model = Optimized("model", [0, 1], [parameter], [], "train.py:9")
    model.steps = 1
    model.note_reductions(reduced)
    reduced.has_pass = False
    return model.counts


def parameter():
    found = nn.Parameter(torch.ones(4))
    found.grad = torch.ones(4)
    return found


def test_what_was_reduced_after_the_backward_pass_is_the_gradient():
    reduced = Reductions()
    reduced.pass_begins()
    reduced.num_elements = 4
    assert step(reduced, parameter()) == {"all": 1, "some": 0, "none": 0}


def test_what_was_reduced_before_the_backward_pass_is_another_models():
    reduced = Reductions()
    for _ in range(2):
        reduced.num_elements += 100
        reduced.pass_begins()
        assert step(reduced, parameter()) == {"all": 0, "some": 0, "none": 1}


def test_two_optimizers_may_share_a_backward_pass():
    reduced = Reductions()
    reduced.pass_begins()
    reduced.num_elements = 8
    assert step(reduced, parameter()) == step(reduced, parameter()) == {"all": 1, "some": 0, "none": 0}
