"""Operators that are one kernel on CUDA alone differentiate, batch and recompute as any other."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

pytestmark = [
    pytest.mark.usefixtures("gpus"),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]


class Attention(nn.Module):
    def __init__(self, width, dropout=0.0):
        super().__init__()
        self.into, self.dropout = nn.Linear(width, 3 * width), dropout

    def forward(self, x):
        query, key, value = self.into(x)[:, None].chunk(3, -1)
        return F.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout)[:, 0]


class First(nn.Module):
    """The first of a recurrent network's results."""

    def __init__(self, kind, width, dropout=0.0):
        super().__init__()
        self.inner = kind(width, width, 2, dropout=dropout, batch_first=True)

    def forward(self, x):
        return self.inner(x)[0]


WIDTH = 8
KERNELS = {
    "attention": Attention,
    "LSTM": lambda *given: First(nn.LSTM, *given),
    "GRU": lambda *given: First(nn.GRU, *given),
    "RNN": lambda *given: First(nn.RNN, *given),
    "dropout": lambda width, dropout=0.0: nn.Sequential(nn.Linear(width, width), nn.Dropout(dropout)),
    "norm": lambda width, _=0.0: nn.RMSNorm(width),
}
DRAWING = [name for name in KERNELS if name != "norm"]


def rows(dtype=torch.float32):
    torch.manual_seed(1)
    return torch.randn(3, 5, WIDTH, dtype=dtype)


def seeded(module, x):
    torch.manual_seed(2)
    return module(x).square().sum()


@pytest.mark.parametrize("name", KERNELS)
def test_a_gradient_has_a_gradient(name):
    module = KERNELS[name](WIDTH).double()

    def second(device):
        leaf = rows(torch.float64).to(device).requires_grad_()
        (first,) = torch.autograd.grad(module.to(device)(leaf).square().sum(), leaf, create_graph=True)
        found = torch.autograd.grad(first.square().sum(), [leaf, *module.parameters()], allow_unused=True)
        return [gradient.cpu() for gradient in found if gradient is not None]

    with sdpa_kernel(SDPBackend.MATH):  # neither CUDA's fused kernels nor the CPU's have one
        for ours, theirs in zip(second("cuda:1"), second("cpu"), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_fused_attention_has_no_gradient_of_a_gradient():
    leaf = rows().cuda().requires_grad_()
    (first,) = torch.autograd.grad(Attention(WIDTH).cuda()(leaf).square().sum(), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match=r"derivative for .*_scaled_dot_product.* is not implemented"):
        first.sum().backward()


@pytest.mark.parametrize("name", [name for name in DRAWING if name != "attention"])
def test_gradients_that_are_to_have_gradients_draw_the_same_numbers_too(name):
    module, leaf = KERNELS[name](WIDTH, 0.5).to("cuda:1"), rows().to("cuda:1").requires_grad_()
    total = seeded(module, leaf)
    (plain,) = torch.autograd.grad(total, leaf, retain_graph=True)
    (further,) = torch.autograd.grad(total, leaf, create_graph=True)
    torch.testing.assert_close(further, plain)


@pytest.mark.parametrize("name", KERNELS)
def test_functions_of_functions(name):
    module, x = KERNELS[name](WIDTH).to("cuda:1"), rows().to("cuda:1")
    weights = dict(module.named_parameters())
    found = torch.func.grad(lambda given: torch.func.functional_call(module, given, (x,)).square().sum())(
        weights
    )
    expected = torch.autograd.grad(module(x).square().sum(), list(weights.values()))
    for gradient, other in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(gradient, other)


@pytest.mark.parametrize("name", ["attention", "dropout", "norm"])
def test_a_batch_of_calls_is_one_call(name):
    module, x = KERNELS[name](WIDTH, 0.0).to("cuda:1"), rows().to("cuda:1")
    torch.testing.assert_close(torch.vmap(module)(x[None])[0], module(x))


@pytest.mark.parametrize("name", DRAWING)
def test_a_graph_that_is_kept_can_be_used_twice_and_one_that_is_not_cannot(name):
    module = KERNELS[name](WIDTH, 0.3).to("cuda:1")
    total = seeded(module, rows().to("cuda:1"))
    first, second = (
        torch.autograd.grad(total, list(module.parameters()), retain_graph=retain) for retain in (True, False)
    )
    assert all(torch.equal(left, other) for left, other in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(total, list(module.parameters()))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", DRAWING)
def test_a_checkpoint_recomputes_with_the_same_numbers(name, reentrant):
    module, gradients = KERNELS[name](WIDTH, 0.5).to("cuda:1"), []
    for call in (module, lambda x: checkpoint(module, x, use_reentrant=reentrant)):
        leaf = rows().to("cuda:1").requires_grad_()
        seeded(call, leaf).backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)
