"""A call like one before, on GPUs without numbers, gives what the first one gave."""

import pytest
import torch
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn import functional

from dpdemo.virtual import virtual_gpus


@pytest.fixture(autouse=True)
def gpus():
    """Two virtual GPUs without numbers."""
    with virtual_gpus(2, storage="meta") as opened:
        yield opened


def learned(*shape, device="cuda:0"):
    """Return a tensor of which no number is known, as of all that is computed from parameters."""
    return nn.Parameter(torch.ones(shape)).to(device).detach()


def test_results_are_where_their_operands_are_and_take_as_much(gpus):
    for device in ("cuda:0", "cuda:1", "cuda:1"):
        index = int(device[-1])
        x = learned(300, 500, device=device)
        before = gpus.live_bytes(index)
        y = x.t() @ x
        assert (y.device, tuple(y.shape), y.stride()) == (x.device, (500, 500), (500, 1))
        assert gpus.live_bytes(index) - before == -(-500 * 500 * 4 // 512) * 512
        del x, y


def test_what_is_known_of_a_result_is_known_again():
    x = learned(6)
    assert [torch.zeros_like(x).sum().item() for _ in range(3)] == [0, 0, 0]
    assert [torch.ones_like(x).sum().item() for _ in range(3)] == [6, 6, 6]
    for _ in range(2):
        assert (torch.arange(6, device="cuda") + 1).tolist() == [1, 2, 3, 4, 5, 6]


def test_operands_on_two_gpus_are_refused_after_some_on_one():
    x = learned(4)
    for _ in range(2):
        x + x
        with pytest.raises(RuntimeError, match="on the same device"):
            x + learned(4, device="cuda:1")


def test_a_write_of_another_shape_is_refused_after_one_that_fits():
    x, row, wide = learned(4, 4), learned(4), learned(5)
    for _ in range(2):
        assert x.add_(row) is x
        with pytest.raises(RuntimeError, match="broadcast"):
            x.add_(wide)
    for _ in range(2):
        target = learned(0)
        assert torch.mul(x, row, out=target).shape == (4, 4)


def test_what_cpp_makes_on_the_host_may_join_operands_on_a_gpu_again_and_again():
    query, key = learned(2, 4, 5, 8), learned(2, 2, 5, 8)
    for _ in range(3):  # the mask that hides what is to come is C++'s own
        found = functional.scaled_dot_product_attention(query, key, key, is_causal=True, enable_gqa=True)
        assert found.device == query.device


def test_tensors_put_into_one_are_where_they_were_and_what_is_known_stays_known(gpus):
    for _ in range(2):
        parts = [learned(3, 4), learned(5)]
        before = gpus.live_bytes(0)
        with torch.no_grad():
            whole = _flatten_dense_tensors(parts)
        assert (whole.shape, whole.device) == ((17,), parts[0].device)
        assert gpus.live_bytes(0) - before == 512
        first, second = _unflatten_dense_tensors(whole, parts)
        assert (first.shape, second.shape) == ((3, 4), (5,))
        assert gpus.live_bytes(0) - before == 512
        del whole, first, second
    with torch.no_grad():
        known = _flatten_dense_tensors(
            [torch.tensor([1, 2], device="cuda"), torch.tensor([3], device="cuda")]
        )
    assert known.tolist() == [1, 2, 3]


def test_gradients_flow_through_tensors_put_into_one():
    weight = learned(3).requires_grad_()
    _flatten_dense_tensors([weight, weight]).sum().backward()
    assert weight.grad.device == weight.device
