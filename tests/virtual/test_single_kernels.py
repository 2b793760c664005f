"""`dropout` and `rms_norm` on a virtual GPU: CUDA's numbers, and the bytes of its kernels."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from dpdemo.virtual import suspended, virtual_gpus

pytestmark = pytest.mark.usefixtures("gpus")
NUMBERS = 1000
ROWS, WIDTH = 512, 256


def thinned(device, function):
    torch.manual_seed(1)
    leaf = torch.randn(NUMBERS).to(device).requires_grad_()
    torch.manual_seed(2)
    result = function(leaf)
    (gradient,) = torch.autograd.grad(result.sum(), leaf)
    return [result.detach().cpu(), gradient.cpu()]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.dropout(x, 0.5),
        lambda x: F.dropout(x, 0.1),
        lambda x: F.dropout(x, 0.5, training=False),
        lambda x: F.dropout(x, 0.0),
        lambda x: F.dropout(x, 1.0),
        lambda x: F.dropout(x.clone(), 0.5, inplace=True),
        lambda x: F.alpha_dropout(x, 0.5, training=True),
        lambda x: F.dropout1d(x.view(1, 10, 100), 0.5),
        lambda x: torch.dropout(x, 0.3, True),
        nn.Dropout(0.3),
    ],
)
@pytest.mark.parametrize("gpus", ["cpu"], indirect=True)
def test_with_the_cpus_random_numbers_results_and_gradients_are_the_cpus(function):
    for on_gpu, other in zip(thinned("cuda:1", function), thinned("cpu", function), strict=True):
        torch.testing.assert_close(on_gpu, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_mask_takes_a_byte_an_element(gpus, dtype):
    leaf = torch.ones(NUMBERS, dtype=dtype, device="cuda:1", requires_grad=True)
    before = gpus.live_bytes(1)
    result = F.dropout(leaf, 0.5)
    assert gpus.live_bytes(1) - before == -(-leaf.nbytes // 512) * 512 + 1024
    assert set(result.float().unique().tolist()) == {0.0, 2.0}
    del result
    assert gpus.live_bytes(1) == before


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_all_or_nothing_has_no_mask_of_bytes(gpus, p):
    leaf = torch.ones(NUMBERS, device="cuda:1", requires_grad=True)
    before = gpus.live_bytes(1)
    result = F.dropout(leaf, p)
    assert (gpus.live_bytes(1) - before) % 4096 == 0
    assert result.sum().item() == NUMBERS * (1 - p)


@pytest.mark.parametrize("storage", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_only_the_input_and_a_number_a_row_are_kept(storage, dtype):
    with suspended(), virtual_gpus(1, storage=storage) as gpus:
        norm = nn.RMSNorm(WIDTH).cuda().to(dtype)
        data = torch.zeros(ROWS, WIDTH, device="cuda", dtype=dtype, requires_grad=True)
        before = gpus.live_bytes(0)
        output = norm(data)
        assert gpus.live_bytes(0) - before == output.nbytes + ROWS * 4
        loss = output.sum()
        del output
        assert gpus.live_bytes(0) - before == ROWS * 4 + 512
        gpus.reset_peaks()
        torch.autograd.backward(loss)
        assert data.grad is not None
        assert gpus.peak_bytes(0) - before <= data.nbytes + ROWS * 4 + 6 * 512


@pytest.mark.parametrize("with_weight", [True, False])
def test_numbers_and_gradients_of_a_norm_are_the_cpus(with_weight):
    data, weight = torch.randn(4, 6, 8), torch.randn(8) if with_weight else None

    def run(device):
        given = [None if x is None else x.detach().to(device).requires_grad_() for x in (data, weight)]
        output = nn.functional.rms_norm(given[0], [8], given[1])
        torch.autograd.backward(output.square().sum())
        return [output.detach(), *(x.grad for x in given if x is not None and x.grad is not None)]

    for found, wanted in zip(run("cuda:1"), run("cpu"), strict=True):
        torch.testing.assert_close(found.cpu(), wanted)


@pytest.mark.parametrize(
    "function",
    [lambda x: F.rms_norm(x, [4]), lambda x: nn.LSTM(4, 2).to(x.device)(x)[0], lambda x: F.dropout(x, 0.0)],
)
def test_a_class_with_operators_of_its_own_sees_those_of_a_kernel(function):
    given = TwoTensor(torch.ones(3, 4, device="cuda"), torch.ones(3, 4, device="cuda"))
    given.requires_grad_()
    result = function(given)
    assert (type(result), result.device.index) == (TwoTensor, 0)
    assert result.a.equal(result.b)
    torch.autograd.backward(result.sum())
    assert given.grad.a.shape == (3, 4)


def test_under_autocast_the_norm_is_in_float32():
    with torch.autocast("cuda"):
        assert nn.RMSNorm(8).cuda()(torch.ones(2, 8, device="cuda").half()).dtype is torch.float32


def test_a_weight_on_another_device_is_cudas_error():
    with pytest.raises(RuntimeError, match="two devices"):
        nn.RMSNorm(8).cuda(1)(torch.ones(2, 8, device="cuda"))
