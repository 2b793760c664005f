"""Gradients that meet are added in place where autograd does so without virtual GPUs, as it profiles."""

import pytest
import torch
from torch.nn import functional

from dpdemo.virtual import virtual_gpus


def _residual(weight):
    hidden = weight.exp()
    return (hidden + functional.linear(hidden, torch.ones_like(weight))) * 2


def _linear_twice(weight):  # its gradient is a view, into which nothing is added
    return functional.linear(weight.detach(), weight) + functional.linear(weight.detach().sin(), weight)


def _held(weight):
    hidden = weight.exp()
    hidden.register_hook(_HELD.append)
    return hidden.sin() + hidden * 2


class _Adds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        part = gradient * x.cos()
        return part + gradient * 2


def _in_a_function(weight):
    return _Adds.apply(weight.exp())


def _shared(weight):  # one gradient for both operands of the first addition
    hidden = weight.exp()
    return (hidden + hidden.sin()) * 2 + hidden.cos()


_HELD = []
CASES = (_residual, _linear_twice, _held, _in_a_function, _shared)


def _backward(make, device):
    """Return the gradient, and how many additions were made in place."""
    weight = torch.linspace(-1, 1, 64, device=device).view(8, 8).requires_grad_()
    end = make(weight).sum()
    with torch.autograd.profiler.profile() as profile:
        end.backward()
    return weight.grad.cpu(), sum(event.name == "aten::add_" for event in profile.function_events)


@pytest.mark.parametrize("make", CASES)
def test_additions_are_in_place_where_autograd_makes_them_so(make):
    expected, number = _backward(make, "cpu")
    with virtual_gpus(1):
        found, in_place = _backward(make, "cuda")
    assert torch.equal(found, expected)
    assert in_place == number
    _HELD.clear()


def test_some_of_the_cases_are_in_place_and_some_are_not():
    assert {_backward(make, "cpu")[1] > 0 for make in CASES} == {True, False}


def test_a_residual_branch_holds_two_gradients_without_numbers_too():
    for storage in ("cpu", "meta"):
        with virtual_gpus(1, storage=storage) as gpus:
            weight = torch.ones(512, 512, device="cuda", requires_grad=True)
            end = _residual(weight).sum()
            log = gpus.log()
            before = len(log)
            torch.autograd.backward(end)
            made = [event[3] for event in log[before:] if event[0] == 0]
            assert made.count(weight.nbytes) == 3  # of the product, of linear's input, of exp: no sum
