"""Dtypes that CUDA takes and the CPU does not, and the other way round."""

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom

from dpdemo.virtual import UnsupportedOpError

pytestmark = pytest.mark.usefixtures("gpus")


def test_they_run_in_a_wider_dtype_and_give_the_narrow_one():
    with pytest.raises(NotImplementedError, match="histogram_cpu"):
        torch.histc(torch.arange(5), bins=5)
    counts = torch.histc(torch.arange(5, device="cuda:1"), bins=5)
    assert counts.tolist() == [1] * 5
    assert counts.dtype is torch.int64
    assert counts.get_device() == 1
    half = torch.rand(1, 1, 4, 4, 4, dtype=torch.float16, device="cuda").requires_grad_()
    pooled = F.avg_pool3d(half, 2)
    pooled.sum().backward()
    assert pooled.dtype is torch.float16
    assert half.grad is not None
    assert half.grad.unique().tolist() == [0.125]


def test_what_the_cpu_cannot_do_in_any_dtype_fails_with_the_operators_name():
    with pytest.raises(UnsupportedOpError, match=r"aten\.histc\.default.*not implemented for 'Bool'"):
        torch.histc(torch.ones(3, dtype=torch.bool, device="cuda"))


NEITHER = {
    "logarithms of integers": (lambda: F.log_softmax(ones(3, 3), 1), "not implemented for 'Long'"),
    "a loss of integers": (lambda: F.mse_loss(ones(3), ones(3)), "not implemented for 'Long'"),
    "a layer norm of integers": (lambda: F.layer_norm(ones(3, 3), (3,)), "not implemented for 'Long'"),
    "a decomposition of float16": (lambda: torch.linalg.qr(ones(3, 3).half()), "not implemented for 'Half'"),
    "distances in bfloat16": (lambda: F.pdist(ones(3, 3).bfloat16()), "not implemented for 'BFloat16'"),
}


def ones(*shape):
    return torch.ones(shape, dtype=torch.int64, device="cuda")


@pytest.mark.parametrize("what", NEITHER)
def test_what_neither_the_cpu_nor_cuda_computes_is_refused(what):
    compute, message = NEITHER[what]
    with pytest.raises(NotImplementedError, match=message) as caught:
        compute()
    assert not isinstance(caught.value, UnsupportedOpError)


PRODUCTS_OF_INTEGERS = {
    "addmm_cuda": lambda: ones(2, 2) @ ones(2, 2),
    "baddbmm_cuda": lambda: torch.bmm(*[ones(1, 2, 2)] * 2),
    "addmv_impl_cuda": lambda: ones(2, 2) @ ones(2),
    "dot": lambda: ones(2) @ ones(2),
    "convolution_cuda": lambda: F.conv1d(ones(1, 1, 3), ones(1, 1, 2)),
}


@pytest.mark.parametrize("name", PRODUCTS_OF_INTEGERS)  # of CUDA's kernel
def test_cuda_has_no_products_of_integers_and_the_cpu_has(name):
    with pytest.raises(NotImplementedError, match=f"^\"{name}\" not implemented for 'Long'$"):
        PRODUCTS_OF_INTEGERS[name]()
    assert torch.ones(2, dtype=torch.int64) @ torch.ones(2, dtype=torch.int64) == 2


def test_other_errors_are_pytorchs_own():
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied") as caught:
        torch.ones(2, 3, device="cuda") @ torch.ones(2, 3, device="cuda")
    assert type(caught.value) is RuntimeError


def attended(query, key):
    mask = torch.ones(8, 8, device=query.device, dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(query, key, key, attn_mask=mask)


def recurrent(data, weight):
    hidden = weight[:3].T.reshape(12, 4)[:, :3] / 4
    state = data.new_zeros(1, 2, 3)
    return torch._VF.lstm(data, (state, state), (weight / 4, hidden), False, 1, 0.0, False, False, False)[0]


PRODUCTS = {
    "1d": (F.conv1d, (4, 32, 64), (64, 32, 5), {"stride": 2}),
    "2d": (F.conv2d, (2, 64, 16, 16), (32, 64, 3, 3), {"padding": 1}),
    "3d": (F.conv3d, (2, 32, 4, 8, 8), (16, 32, 3, 3, 3), {}),
    "grouped": (F.conv2d, (2, 64, 16, 16), (64, 16, 3, 3), {"groups": 4}),
    "dilated": (F.conv2d, (2, 64, 16, 16), (32, 64, 3, 3), {"dilation": 2}),
    "transposed 1d": (F.conv_transpose1d, (4, 64, 32), (64, 32, 4), {}),
    "transposed 2d": (F.conv_transpose2d, (2, 64, 8, 8), (64, 32, 3, 3), {"stride": 2}),
    "transposed 3d": (F.conv_transpose3d, (2, 32, 4, 4, 4), (32, 16, 3, 3, 3), {}),
    "linear": (F.linear, (16, 64), (32, 64), {}),
    "batched": (torch.bmm, (4, 16, 32), (4, 32, 8), {}),
    "attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k), (2, 4, 8, 16), (2, 4, 8, 16), {}),
    "attention beside a mask": (attended, (2, 4, 8, 16), (2, 4, 8, 16), {}),
    "recurrent": (recurrent, (5, 2, 16), (12, 16), {}),
}


def multiplied(name, dtype, device):
    """Return the result of a product and its gradients, from the same float16 numbers."""
    function, shape, weight, options = PRODUCTS[name]
    torch.manual_seed(0)
    given = [torch.randn(size).half().to(device, dtype).requires_grad_() for size in (shape, weight)]
    result = function(*given, **options)
    return [result, *torch.autograd.grad(result.sum(), given)]


@pytest.mark.parametrize("name", PRODUCTS)
def test_float16_products_add_up_in_float32_and_round_once(name):
    """So CUDA computes them: each number is the nearest float16 of one that is exact to float32."""
    found = multiplied(name, torch.float16, "cuda")
    exact = multiplied(name, torch.float64, "cpu")
    for narrow, true in zip(found, exact, strict=True):
        assert narrow.dtype is torch.float16
        assert narrow.is_cuda
        error = (narrow.detach().cpu().double() - true.detach()).abs()
        several = (
            8 if name in {"recurrent", "attention", "attention beside a mask"} else 1
        )  # steps that round
        assert (error <= several * (true.detach().abs() * 2.0**-11 + 1e-4)).all()


def test_float16_convolutions_take_no_wide_bytes_on_a_gpu(gpus):
    layer = torch.nn.Conv2d(16, 16, 3, padding=1, bias=False).half().cuda()
    x = torch.ones(4, 16, 8, 8, dtype=torch.float16, device="cuda")
    before = gpus.live_bytes(0)
    gpus.reset_peaks()
    result = layer(x)
    assert gpus.peak_bytes(0) - before == result.numel() * 2


def test_autocast_convolves_in_float16():
    layer = torch.nn.Conv2d(16, 16, 3).cuda()
    with torch.autocast("cuda"):
        result = layer(torch.ones(2, 16, 8, 8).cuda())
    result.float().sum().backward()
    assert result.dtype is torch.float16
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype is torch.float32


@pytest.mark.parametrize(
    ("layer", "dtype", "message"),
    [
        (torch.nn.LayerNorm(2), torch.float16, "expected scalar type Half but found Float"),
        (torch.nn.LayerNorm(2, bias=False), torch.bfloat16, "expected scalar type BFloat16 but found Float"),
        (torch.nn.GroupNorm(1, 2), torch.float64, "expected scalar type Double but found Float"),
    ],
)
def test_norms_of_two_dtypes_are_refused_on_a_gpu_alone(layer, dtype, message):
    assert torch.nn.LayerNorm(2)(torch.ones(2, 2, dtype=torch.bfloat16)).dtype is torch.bfloat16
    data = torch.ones(2, 2, dtype=dtype, device="cuda")
    with pytest.raises(RuntimeError, match=f"^{message}$"):
        layer.cuda()(data)
    with torch.autocast("cuda"):
        assert layer(data.half()).dtype is torch.float32
    assert layer.to(dtype)(data).dtype is dtype


def test_an_operator_that_cuda_does_not_have_is_refused():
    with pytest.raises(NotImplementedError, match=r"Could not run 'aten::histogram.bin_ct' with"):
        torch.histogram(torch.ones(3, device="cuda"), 2)
    assert torch.histogram(torch.ones(3), 2).hist.sum() == 3


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("affine", "bias"), [(True, True), (True, False), (False, False)])
def test_a_layer_norm_of_narrow_numbers_computes_in_float32_and_keeps_statistics_in_it(narrow, affine, bias):
    """As native/cuda/layer_norm_kernel.cu: all in float32 (`acc_type`), and each result rounded once."""
    layer = torch.nn.LayerNorm(64, elementwise_affine=affine, bias=bias).to(narrow)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-1, 1)
    data, gradient = torch.randn(2, 5, 64).to(narrow).chunk(2)

    def results(layer, data, gradient):
        data = data.requires_grad_()
        output = layer(data)
        output.backward(gradient)
        return [output, data.grad, *(parameter.grad for parameter in layer.parameters())]

    wide = results(copy.deepcopy(layer).float(), data.float(), gradient.float())
    found = results(layer.cuda(), data.cuda(), gradient.cuda())
    step = torch.finfo(narrow).eps
    for each, exact in zip(found, wide, strict=True):
        torch.testing.assert_close(each.float().cpu(), exact, rtol=step, atol=step / 16)
    _, mean, rstd = torch.native_layer_norm(data.cuda(), (64,), layer.weight, layer.bias, 1e-5)
    assert mean.dtype is rstd.dtype is torch.float32
