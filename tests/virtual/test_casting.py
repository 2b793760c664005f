"""`torch.autocast("cuda")` casts on virtual GPUs by CUDA's lists, and nowhere else."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import nn

pytestmark = pytest.mark.usefixtures("gpus")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("compute", "kind"),
    [
        (lambda x: x @ x, "lower"),
        (lambda x: F.linear(x, x, x[0]), "lower"),
        (lambda x: F.conv1d(x[None], x[:, :, None]), "lower"),
        (lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]), "lower"),
        (lambda x: nn.LSTM(4, 4).cuda()(x)[0], "lower"),
        (lambda x: (x @ x).softmax(-1), "float32"),
        (lambda x: (x @ x).sum(), "float32"),
        (lambda x: F.layer_norm(x @ x, (4,)), "float32"),
        (lambda x: (x @ x).exp(), "float32"),
        (lambda x: F.mse_loss(x @ x, x), "float32"),
        (lambda x: torch.cat([x @ x, x]), "float32"),
        (lambda x: torch.cat([x @ x, x @ x]), "lower"),
        (lambda x: (x @ x).relu() + 1, "lower"),
        (lambda x: x.double() @ x.double(), "float64"),
    ],
)
def test_results_have_the_dtypes_of_cudas_lists(dtype, compute, kind):
    with torch.autocast("cuda", dtype):
        result = compute(torch.rand(4, 4, device="cuda:1").to("cuda:0"))
    assert result.dtype is {"lower": dtype, "float32": torch.float32, "float64": torch.float64}[kind]
    assert result.is_cuda


def test_cpu_tensors_are_left_alone_and_the_cpus_own_autocast_too():
    x = torch.rand(4, 4)
    with torch.autocast("cuda"):
        assert (x @ x).dtype is torch.float32
        assert torch.is_autocast_enabled("cuda")
        assert not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16
        assert (x.cuda() @ x.cuda()).device.type == "cuda"


def test_autocast_ends_where_its_block_ends_and_nests():
    x = torch.rand(4, 4, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        with torch.autocast("cuda", enabled=False):
            assert (x @ x).dtype is torch.float32
        assert (x @ x).dtype is torch.bfloat16
    assert (x @ x).dtype is torch.float32


def test_weights_are_cast_once_and_get_their_gradients_in_float32():
    layer = nn.Linear(4, 4).cuda()
    x = torch.rand(4, 4, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = layer(layer(x)).float().pow(2).sum()
    loss.backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype is torch.float32
    assert layer.weight.grad.is_cuda


def test_binary_cross_entropy_is_refused_in_cudas_words():
    x = torch.rand(4, device="cuda")
    with torch.autocast("cuda"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(x, x)


def test_replicas_run_under_autocast_in_float16_whatever_the_caller_asked_for():
    """`parallel_apply` hands on only whether autocast is on, not its dtype (pytorch/pytorch#60706)."""
    model = nn.DataParallel(nn.Linear(4, 2).cuda())
    with torch.autocast("cuda", torch.bfloat16):
        assert model(torch.rand(8, 4)).dtype is torch.float16
        assert model.module(torch.rand(8, 4).cuda()).dtype is torch.bfloat16


def test_the_gradient_scaler_trains_and_skips_infinite_steps():
    model = nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    for scale in (1.0, float("inf")):
        before = model.weight.detach().clone()
        with torch.autocast("cuda"):
            loss = model(torch.rand(3, 4, device="cuda")).float().pow(2).mean() * scale
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, model.weight) == (scale != 1.0)
    assert scaler.get_scale() == 512


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
def test_softmax_of_float16_makes_no_wide_copy_of_its_operand(gpus, function):
    data = torch.randn(64, 256, device="cuda").half().requires_grad_()
    seed = torch.randn(64, 256, device="cuda")
    wide = data.detach().float().requires_grad_()
    function(wide, -1).backward(seed)
    before = gpus.live_bytes(0)
    gpus.reset_peaks()
    with torch.autocast("cuda"):
        result = function(data, -1)
    assert gpus.peak_bytes(0) == gpus.live_bytes(0) == before + 64 * 256 * 4
    result.backward(seed)
    assert result.dtype is torch.float32
    assert data.grad is not None
    assert wide.grad is not None
    assert data.grad.dtype is torch.float16
    torch.testing.assert_close(result, function(wide, -1), rtol=0, atol=0)
    torch.testing.assert_close(data.grad, wide.grad.half(), rtol=0, atol=0)


def test_on_the_cpu_softmax_from_float16_is_refused_as_ever():
    with pytest.raises(RuntimeError, match="not supported on CPU"):
        torch.ops.aten._softmax(torch.ones(2, dtype=torch.float16), 0, True)
