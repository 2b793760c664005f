"""Gradients that ranks reduce themselves, under no wrapper."""

import torch
from torch import nn

from dpdemo.ranks.observe.reductions import Optimized, Reductions


def stepped(reduced, parameter):
    """Return the model of an optimizer after its first step."""
    model = Optimized("model", [0, 1], [parameter], [], "train.py:9")
    model.steps = 1
    model.note_reductions(reduced)
    reduced.has_pass = False
    return model


def step(reduced, parameter):
    """Make the first step of an optimizer, and count whether its gradient was reduced."""
    return stepped(reduced, parameter).counts


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


def knowing():
    """Return reductions that know a parameter, and it."""
    reduced, found = Reductions(), parameter()
    reduced.know([found])
    return reduced, found


def test_a_parameter_that_ranks_gather_is_a_shard():
    reduced, found = knowing()
    reduced.gathers([torch.ones(4), found[:2]])
    assert not stepped(reduced, found).is_sharded
    reduced.gathers([found.detach()])
    assert stepped(reduced, found).is_sharded


def test_what_a_reduce_scatter_writes_is_the_gradient_of_a_shard():
    reduced, found = knowing()
    flat = torch.ones(9)
    reduced.scatters([flat])
    assert not stepped(reduced, found).is_sharded
    found.grad = flat[:4]
    assert stepped(reduced, found).is_sharded
    reduced, found = knowing()
    reduced.scatters([torch.ones(4, dtype=torch.float16)])  # as large, and cast or scaled afterwards
    assert stepped(reduced, found).is_sharded
