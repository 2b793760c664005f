"""Tensor classes that define operators, and PyTorch's tracers: each works or raises an error.

None may end the process, so some cases run in another.
"""

import copy
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.masked import masked_tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_map_only

from dpdemo.virtual import UnsupportedOpError

ONE = torch.device("cuda:1")
pytestmark = [
    pytest.mark.usefixtures("gpus"),
    pytest.mark.filterwarnings("ignore"),  # prototypes of PyTorch's, which say so
]


class Wrapper(torch.Tensor):
    """The smallest wrapper: one tensor, on which all operators work."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, requires_grad=inner.requires_grad
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def bare(tensor):
            return tensor.inner

        args, kwargs = tree_map_only(Wrapper, bare, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, Wrapper, func(*args, **kwargs))


def jagged(**options):
    rows = [torch.ones(2, 4), torch.ones(3, 4)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: jagged(device=ONE),
        lambda: jagged().to(ONE),
        lambda: jagged().cuda(1),
        lambda: torch.nested.nested_tensor([torch.ones(2, 4).to(ONE)] * 2, layout=torch.jagged),
        lambda: Wrapper(torch.ones(3, 4).to(ONE)),
        lambda: Wrapper(torch.ones(3, 4)).to(ONE),
        lambda: TwoTensor(torch.ones(3, 4).to(ONE), torch.ones(3, 4).to(ONE)),
        lambda: masked_tensor(torch.ones(3, 4).to(ONE), torch.ones(3, 4, dtype=torch.bool).to(ONE)),
    ],
)
def test_a_wrapper_of_tensors_is_where_they_are(make):
    made = make()
    assert (made.device, (made * 2).device, made.sin().device) == (ONE, ONE, ONE)
    assert made.is_cuda
    assert copy.deepcopy(made).device == ONE


def test_a_wrapper_moves_by_its_parts_and_the_bytes_are_counted(gpus):
    there = Wrapper(torch.ones(3, 4)).to(ONE)
    assert there.inner.device == ONE
    assert gpus.bytes_moved.host_to_device == 48
    back = there.cpu()
    assert (back.device.type, back.inner.device.type) == ("cpu", "cpu")
    assert gpus.bytes_moved.device_to_host == 48
    assert torch.equal(back.inner, torch.ones(3, 4))


def test_jagged_nested_tensors_are_trained_on_a_gpu():
    layer, batch = nn.Linear(4, 3).cuda(1), jagged(device=ONE, requires_grad=True)
    layer(batch).values().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.device == ONE
    assert torch.equal(layer.weight.grad.cpu(), torch.full((3, 4), 5.0))
    assert batch.grad is not None
    assert batch.grad.device == ONE
    assert batch.cpu().offsets().device.type == "cpu"


def test_a_wrapper_beside_a_cpu_tensor_is_cudas_error():
    with pytest.raises(RuntimeError, match="on the same device"):
        Wrapper(torch.ones(3, 4).cuda()) @ torch.ones(4, 3)


def test_attention_over_jagged_tensors_runs():
    rows = [torch.randn(2, 4, 8), torch.randn(3, 4, 8)]
    here = torch.nested.nested_tensor(rows, layout=torch.jagged).transpose(1, 2)
    there = torch.nested.nested_tensor(rows, layout=torch.jagged, device=ONE).transpose(1, 2)
    expected = F.scaled_dot_product_attention(here, here, here)
    result = F.scaled_dot_product_attention(there, there, there)
    assert result.device == ONE
    torch.testing.assert_close(result.values().cpu(), expected.values())


def test_fake_tensors_say_which_gpu_they_would_be_on():
    layer, batch = nn.Linear(2, 2).to(ONE), torch.ones(1, 2, device=ONE)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        result = layer(mode.from_tensor(batch))
        made = torch.ones(1, 2, device=ONE) @ torch.ones(2, 2, device=ONE)
    assert (result.device, made.device) == (ONE, ONE)
    parallel = nn.DataParallel(layer.cuda(0))
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert parallel(torch.ones(8, 2)).shape == (8, 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda device: torch.empty(3, device=device).uniform_(-1, 2),
        lambda device: nn.init.xavier_uniform_(torch.empty(3, 2, device=device)),
        lambda device: nn.Linear(4, 2, device=device)(torch.ones(3, 4, device=device)),
        lambda device: nn.Conv2d(1, 2, 3, device=device).weight,
        lambda device: torch.tensor([1.0], device=device),
        lambda device: torch.as_tensor([1.0], device=device) + 1,
        lambda device: torch.tensor([1.0]).to(device),
        lambda device: torch.tensor([1.0]).cuda(device) * 2,
    ],
)
def test_fake_tensors_are_made_on_a_gpu_as_real_ones_are(make):
    for device, expected in (("cuda", "cuda:0"), ("cuda:1", "cuda:1")):
        with FakeTensorMode():
            made = make(device)
        assert isinstance(made, FakeTensor)
        assert str(made.device) == expected


def test_an_exported_program_runs_where_it_was_exported():
    layer, batch = nn.Linear(2, 2).to(ONE), torch.ones(1, 2, device=ONE)
    program = torch.export.export(layer, (batch,))
    result = program.module()(batch)
    assert result.device == ONE
    assert torch.equal(result, layer(batch))


@pytest.mark.parametrize("tracing_mode", ["real", "fake", "symbolic"])
def test_a_traced_function_runs_where_it_was_traced(tracing_mode):
    batch = torch.ones(1, 2, device=ONE)
    graph = make_fx(lambda x: x.sin() + 1, tracing_mode=tracing_mode)(batch)
    assert "aten.sin" in graph.code
    assert graph(batch).device == ONE


@pytest.mark.parametrize("masked", [False, True])
def test_flex_attention_has_the_numbers_and_gradients_of_the_formula(masked):
    """On the CPU PyTorch's own has no gradients, so it is the formula."""
    query = torch.randn(1, 2, 128, 16, dtype=torch.float64)
    here, there = query.clone().requires_grad_(), query.to(ONE).requires_grad_()
    steps = torch.arange(128.0, dtype=torch.float64)
    distance = steps[:, None] - steps
    if masked:
        causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cuda:1")  # noqa: ARG005
        result = flex_attention(there, there, there, block_mask=causal)
        bias = torch.where(distance >= 0, 0.0, float("-inf"))
    else:
        result = flex_attention(there, there, there, score_mod=lambda s, b, h, i, j: s + (i - j))  # noqa: ARG005
        bias = distance
    expected = (here @ here.mT / 4 + bias).softmax(-1) @ here
    assert isinstance(result, torch.Tensor)
    result.square().sum().backward()
    expected.square().sum().backward()
    assert there.grad is not None
    assert result.device == there.grad.device == ONE
    torch.testing.assert_close(result.cpu(), expected)
    torch.testing.assert_close(there.grad.cpu(), here.grad)


def test_an_operator_that_takes_functions_runs_or_is_refused_by_name():
    from torch._higher_order_ops.while_loop import while_loop

    start = (torch.tensor(0, device=ONE), torch.ones(2, device=ONE))
    _, doubled = while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * 2), start)
    assert (doubled.device, doubled.tolist()) == (ONE, [8, 8])
    with pytest.raises(UnsupportedOpError, match=r"^cond: "):
        torch.cond(torch.tensor(True, device=ONE), torch.sin, torch.cos, (torch.ones(2, device=ONE),))


def test_what_was_given_to_cpp_is_taken_back():
    """In this process a block is open, so another one asks."""
    code = (
        "import ctypes, torch\n"
        "from dpdemo.virtual import virtual_gpus\n"
        "from dpdemo.virtual.patches.wrappers import _registry\n"
        "before = [bool(guard) for guard in _registry()]\n"
        "with virtual_gpus(2): assert all(_registry())\n"
        "assert [bool(guard) for guard in _registry()] == before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Late(torch.Tensor):
    """A wrapper that C++ makes without asking Python for a label, as it makes DTensors."""

    inner: torch.Tensor

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


def test_a_wrapper_made_by_cpp_is_where_its_first_part_is():
    made = torch._C._VariableFunctions.ones(2).as_subclass(Late)
    made.inner = torch.ones(2, device=ONE)
    assert (made.device, made.is_cuda, made.get_device()) == (ONE, True, 1)
    made.inner = torch.ones(2)
    assert (made.device.type, made.is_cuda) == ("cpu", False)
