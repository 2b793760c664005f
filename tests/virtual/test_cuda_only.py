"""What only CUDA's build can do works, or says that it does not; and the CPU's autocast leaves GPUs alone."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import nn
from torch.profiler import ProfilerActivity, profile

from dpdemo.virtual import UnsupportedOpError

pytestmark = pytest.mark.usefixtures("gpus")
ONE = torch.device("cuda:1")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_of_narrow_matrices_are_added_up_wide(dtype):
    left, other = torch.randn(4, 300).to(dtype), torch.randn(300, 5).to(dtype)
    expected = left.float() @ other.float()
    here, there = left.to(ONE), other.to(ONE)
    results = {
        "mm": torch.mm(here, there, out_dtype=torch.float32),
        "bmm": torch.bmm(here[None], there[None], out_dtype=torch.float32)[0],
        "addmm": torch.addmm(torch.zeros(4, 5).to(ONE), here, there, out_dtype=torch.float32),
    }
    results["mm, out="] = torch.empty(4, 5, device=ONE)
    torch.mm(here, there, out_dtype=torch.float32, out=results["mm, out="])
    for result in results.values():
        assert (result.dtype, result.device) == (torch.float32, ONE)
        torch.testing.assert_close(result.cpu(), expected)
    with pytest.raises(RuntimeError, match=r"^out_dtype must be the same as input dtype or fp32"):
        torch.mm(here, there, out_dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "fft2", "rfftn", "ihfft"])
def test_half_precision_is_transformed_and_rounded(name):
    data = torch.randn(8, 16).half()
    transform = getattr(torch.fft, name)
    result = transform(data.to(ONE))
    assert (result.dtype, result.device) == (torch.complex32, ONE)
    torch.testing.assert_close(
        result.cpu().to(torch.complex64), transform(data.float()), atol=0.05, rtol=0.01
    )
    back = torch.fft.irfft(torch.fft.rfft(data.to(ONE)))
    assert (back.dtype, back.device) == (torch.float16, ONE)


@pytest.mark.parametrize(
    "call",
    [
        lambda q: torch.ops.aten._scaled_dot_product_flash_attention(q, q, q),
        lambda q: torch.ops.aten._scaled_dot_product_efficient_attention(q, q, q, None, True),
        lambda q: torch.ops.aten._flash_attention_forward(q, q, q, None, None, 8, 8, 0.0, False, False),
    ],
)
def test_a_kernel_that_is_not_there_is_refused_by_name(call):
    with pytest.raises(
        UnsupportedOpError, match=r"^aten\._\w+attention\w*\.default: the CPU has no such operator"
    ):
        call(torch.randn(1, 2, 8, 16, device=ONE, dtype=torch.float16))


def test_the_cpus_autocast_casts_the_cpus_tensors_alone():
    here, there = torch.randn(3, 3), torch.randn(3, 3, device=ONE)
    network, convolution = nn.LSTM(3, 3).to(ONE), nn.Conv1d(3, 3, 1).to(ONE)
    with torch.autocast("cpu"):
        assert (here @ here).dtype is torch.bfloat16
        assert F.linear(here, here).dtype is torch.bfloat16
        assert (there @ there).dtype is torch.float32
        assert network(there)[0].dtype is torch.float32
        assert convolution(there).dtype is torch.float32
        with torch.autocast("cuda"):
            assert ((there @ there).dtype, (here @ here).dtype) == (torch.float16, torch.bfloat16)
    assert (here @ here).dtype is torch.float32


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events:UserWarning")  # of PyTorch 2.11
@pytest.mark.parametrize(
    "activities", [[ProfilerActivity.CPU, ProfilerActivity.CUDA], [ProfilerActivity.CPU], None]
)
def test_the_profiler_records_the_operators_and_complains_of_none(activities, capfd):
    with profile(activities=activities) as profiler:
        torch.ones(2, device=ONE).sin()
    assert "aten::sin" in {event.key for event in profiler.key_averages()}
    assert "Failed to record" not in capfd.readouterr().err


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(6, 3, 4, 4), (6, 3)])
def test_synchronised_batch_norm_equals_one_over_the_union_of_the_ranks(shape, dtype):
    """The operators of two ranks with 2 and 4 rows, put together by hand as SyncBatchNorm does."""
    plain = (nn.BatchNorm2d if len(shape) > 2 else nn.BatchNorm1d)(3)
    nn.init.normal_(plain.weight)
    synced = nn.BatchNorm1d(3).to(ONE)
    synced.load_state_dict(plain.state_dict())
    data, upstream = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    whole = data.float().requires_grad_()
    expected = plain(whole)
    expected.backward(upstream.float())
    parts = [part.to(ONE) for part in data.split([2, 4])]
    stats = [torch.batch_norm_stats(part, plain.eps) for part in parts]
    means, invstds = (torch.stack(each) for each in zip(*stats, strict=True))
    pixels = data[0, 0].numel()
    counts = torch.tensor([2.0 * pixels, 4.0 * pixels], device=ONE)
    buffers = (synced.running_mean, synced.running_var, 0.1, plain.eps)
    mean, invstd = torch.batch_norm_gather_stats_with_counts(parts[0], means, invstds, *buffers, counts)
    weight, bias = synced.weight.detach(), synced.bias.detach()
    results = [torch.batch_norm_elemt(part, weight, bias, mean, invstd, plain.eps) for part in parts]
    gradients = [part.to(ONE) for part in upstream.split([2, 4])]
    both = list(zip(gradients, parts, strict=True))
    sums = [
        torch.batch_norm_backward_reduce(*operands, mean, invstd, weight, True, True, True)
        for operands in both
    ]
    sum_dy, sum_dy_xmu, for_weight, for_bias = (sum(each) for each in zip(*sums, strict=True))
    of_input = [
        torch.batch_norm_backward_elemt(*operands, mean, invstd, weight, sum_dy, sum_dy_xmu, counts.int())
        for operands in both
    ]
    assert {result.dtype for result in [*results, *of_input]} == {dtype}
    assert mean.device == ONE
    error = 1e-5 if dtype is torch.float32 else 0.02
    narrow = {"atol": error, "rtol": error}
    torch.testing.assert_close(torch.cat(results).cpu().float(), expected.detach(), **narrow)
    torch.testing.assert_close(torch.cat(of_input).cpu().float(), whole.grad, **narrow)
    torch.testing.assert_close(for_weight.cpu(), plain.weight.grad, **narrow)
    torch.testing.assert_close(for_bias.cpu(), plain.bias.grad, **narrow)
    torch.testing.assert_close(synced.running_mean.cpu(), plain.running_mean, **narrow)
    torch.testing.assert_close(synced.running_var.cpu(), plain.running_var, **narrow)


def test_distributed_random_operator_runs_as_on_cuda():
    """DTensor's `run_dtensor_rng_op`, which PyTorch has for CUDA alone, shifts the GPU's stream."""
    from torch._prims import rng_prims

    if not hasattr(rng_prims, "run_dtensor_rng_op"):
        pytest.skip("this release has no run_dtensor_rng_op")
    torch.cuda.manual_seed(7)
    data = torch.zeros(8, device="cuda")
    drawn = rng_prims.run_dtensor_rng_op(0, 8, torch.ops.aten.uniform_.default, data)
    torch.cuda.manual_seed(7)
    torch.testing.assert_close(drawn, torch.zeros(8, device="cuda").uniform_(), rtol=0, atol=0)
