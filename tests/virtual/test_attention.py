"""Attention on a virtual GPU: the CPU's numbers and gradients, and the bytes of CUDA's kernels."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from fastpart import mostly_slow
from torch.nn.attention import SDPBackend, sdpa_kernel

from dpdemo.virtual.blocks import rounded

pytestmark = pytest.mark.usefixtures("without_collector", "gpus")
BATCH, HEADS, ROWS, WIDTH = 2, 3, 10, 16


def operands(rows=ROWS, columns=ROWS, width=WIDTH, dtype=torch.float32):
    """q, k and v on the CPU."""
    torch.manual_seed(1)
    shapes = ((rows, width), (columns, width), (columns, width))
    return [torch.randn(BATCH, HEADS, *shape).to(dtype) for shape in shapes]


def attend(device, tensors, mask=None, **options):
    """Attend on a device; return the result and all gradients, on the CPU."""
    leaves = [tensor.to(device).detach().requires_grad_() for tensor in tensors]
    at = None if mask is None else mask.detach().to(device).requires_grad_(mask.requires_grad)
    result = F.scaled_dot_product_attention(*leaves, attn_mask=at, **options)
    torch.manual_seed(2)
    seed = torch.randn(result.shape).to(result)
    wanted = leaves + ([at] if at is not None and at.requires_grad else [])
    gradients = torch.autograd.grad(result, wanted, seed)
    assert {tensor.device for tensor in (result, *gradients)} == {torch.device(device)}
    return [tensor.detach().cpu() for tensor in (result, *gradients)]


def agree(tensors, mask=None, **options):
    """Hold a GPU's results and gradients against the CPU's."""
    ours = attend("cuda:1", tensors, mask, **options)
    theirs = attend("cpu", tensors, mask, **options)
    narrow = tensors[0].dtype in (torch.float16, torch.bfloat16)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype
        tolerance = 2e-2 if narrow else 1e-5
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("is_causal", [False, True])
def test_numbers_and_gradients_are_the_cpus(dtype, is_causal):
    agree(operands(dtype=dtype), is_causal=is_causal)


def test_cross_attention_other_widths_and_a_scale():
    for columns in (1, 7, 16, 33):
        agree(operands(columns=columns))
    for width in (1, 5, 8, 12, 300):  # CUDA fuses some of them
        agree(operands(width=width))
        agree(operands(width=width, dtype=torch.bfloat16))
    agree(operands(), scale=0.3)


@pytest.mark.parametrize(
    "mask",
    [
        (torch.arange(ROWS) < 7)[None],
        torch.tril(torch.ones(ROWS, ROWS)).bool(),
        torch.tril(torch.ones(ROWS, ROWS)).bool().expand(BATCH, HEADS, ROWS, ROWS),
        torch.linspace(-2, 2, ROWS * ROWS).view(ROWS, ROWS),
        torch.linspace(-2, 2, ROWS * ROWS).view(1, 1, ROWS, ROWS),
        torch.linspace(-2, 2, BATCH * ROWS).view(BATCH, 1, 1, ROWS),
    ],
    ids=["a row of bool", "bool", "bool of all heads", "float", "float with all dimensions", "float of rows"],
)
def test_masks(mask):
    agree(operands(), mask)


@pytest.mark.parametrize("shape", [(ROWS, ROWS), (1, HEADS, ROWS, ROWS), (BATCH, HEADS, ROWS, ROWS)])
def test_the_gradient_of_a_mask(shape):
    torch.manual_seed(5)
    agree(operands(), torch.randn(shape, requires_grad=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_draws_the_same_numbers_in_forward_and_in_backward(dtype):
    """Attention is linear in v: so the gradient of v is the weights, those that were used, summed up."""
    q, k, v = (tensor.to("cuda:1") for tensor in operands(dtype=dtype))
    v.requires_grad_()
    torch.manual_seed(3)
    result = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    torch.rand(1000, device="cuda:1")  # whatever is drawn between does no harm
    (gradient,) = torch.autograd.grad(result.sum(), v)
    total = (gradient.float() * v.float()).sum(-2).cpu()
    tolerance = 1e-4 if dtype is torch.float32 else 5e-2
    torch.testing.assert_close(total, result.float().sum(-2).cpu(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("gpus", ["cpu"], indirect=True)
def test_dropout_drops_what_the_cpu_drops_where_its_numbers_are_asked_for():
    results = []
    for device in ("cpu", "cuda:1"):
        tensors = [tensor.to(device) for tensor in operands()]
        torch.manual_seed(3)
        results.append(F.scaled_dot_product_attention(*tensors, dropout_p=0.5).cpu())
    torch.testing.assert_close(*results)


def test_recomputation_leaves_the_generator_where_it_was():
    leaves = [tensor.to("cuda:1").requires_grad_() for tensor in operands()]
    result = F.scaled_dot_product_attention(*leaves, dropout_p=0.5).sum()
    state = torch.cuda.get_rng_state(1)
    result.backward()
    assert torch.equal(torch.cuda.get_rng_state(1), state)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients_nothing_is_kept(gpus, context):
    with context():
        tensors = [tensor.to("cuda:1") for tensor in operands()]
        before = gpus.live_bytes(1)
        result = F.scaled_dot_product_attention(*tensors)
        torch.testing.assert_close(result.cpu(), F.scaled_dot_product_attention(*operands()))
        assert gpus.live_bytes(1) == before + rounded(BATCH * HEADS * ROWS * WIDTH * 4)


@pytest.mark.parametrize(
    ("dtype", "width", "mask", "sums"),
    [
        (torch.float32, 16, False, 32),  # the efficient kernel: rows in multiples of 32
        (torch.bfloat16, 16, False, 10),  # flash: as many as there are
        (torch.float16, 16, True, 32),  # flash takes no mask
        (torch.float16, 256, False, 10),
        (torch.float16, 264, False, 32),  # too wide for flash
    ],
)
def test_what_cudas_kernels_keep(gpus, dtype, width, mask, sums):
    leaves = [tensor.to("cuda:1").requires_grad_() for tensor in operands(width=width, dtype=dtype)]
    given = torch.zeros(ROWS, 16, dtype=dtype, device="cuda:1")[:, :ROWS] if mask else None
    before = gpus.live_bytes(1)
    result = F.scaled_dot_product_attention(*leaves, attn_mask=given)
    size = 4 if dtype is torch.float32 else 2
    padded = rounded(ROWS * 16 * size) if mask else 0  # its rows begin at multiples of 16 numbers
    kept = rounded(BATCH * HEADS * sums * 4) + padded
    assert gpus.live_bytes(1) == before + rounded(BATCH * HEADS * ROWS * width * size) + kept
    del result
    assert gpus.live_bytes(1) == before


@pytest.mark.parametrize("width", [5, 6])
def test_what_cuda_does_not_fuse_keeps_the_weights(gpus, width):
    leaves = [tensor.to("cuda:1").requires_grad_() for tensor in operands(width=width)]
    before = gpus.live_bytes(1)
    result = F.scaled_dot_product_attention(*leaves)
    weights = rounded(BATCH * HEADS * ROWS * ROWS * 4)
    assert gpus.live_bytes(1) >= before + weights + rounded(BATCH * HEADS * ROWS * width * 4)
    del result
    assert gpus.live_bytes(1) == before


@pytest.mark.parametrize("kind", ["autocast", "float32"])
def test_a_mask_whose_rows_are_not_in_one_piece_is_not_fused(gpus, kind):
    """The learned bias of T5, permuted: its peak on an H100 was a quarter more than with a fused kernel."""
    shape = (BATCH, HEADS, 16, 16)
    leaves = [torch.randn(shape, device="cuda:1").requires_grad_() for _ in range(3)]
    bias = torch.randn(1, 16, 16, HEADS, device="cuda:1").permute(0, 3, 1, 2)
    before = gpus.live_bytes(1)
    with torch.autocast("cuda", enabled=kind == "autocast"):
        result = F.scaled_dot_product_attention(*leaves, attn_mask=bias, dropout_p=0.5)
    weights, scaled = rounded(BATCH * HEADS * 16 * 16 * 4), rounded(BATCH * HEADS * 16 * 16 * 4)
    dropped = weights + rounded(BATCH * HEADS * 16 * 16)  # what is left, and a mask of one byte each
    kept = weights + dropped + 2 * scaled  # the softmax, and query and key, each with the root of the scale
    upcast = rounded(BATCH * HEADS * 16 * 16 * 4) if kind == "autocast" else 0  # of the value
    out = rounded(result.numel() * result.element_size())
    assert gpus.live_bytes(1) == before + kept + upcast + out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "options", mostly_slow([{}, {"is_causal": True}, {"scale": -0.3}, {"enable_gqa": True}], 4)
)
def test_what_is_not_fused_attends_with_dropout_as_without_but_for_what_is_dropped(dtype, options):
    q, k, v = (torch.randn(2, 4, 6, 5, device="cuda", dtype=dtype) for _ in range(3))  # 5: no kernel takes it
    if "enable_gqa" in options:
        k, v = k[:, :2], v[:, :2]
    expected = F.scaled_dot_product_attention(q, k, v, **options)
    drawn = [F.scaled_dot_product_attention(q, k, v, dropout_p=0.2, **options) for _ in range(600)]
    mean = torch.stack([sample.double() for sample in drawn]).mean(0)
    assert drawn[0].dtype == expected.dtype
    assert (mean - expected.double()).abs().max() < 0.25
    assert (drawn[0] - drawn[1]).abs().max() > 0


@pytest.mark.parametrize(("dtype", "is_fused"), [(torch.bfloat16, True), (torch.float32, False)])
def test_queries_that_share_keys_are_fused_by_the_flash_kernel_alone(gpus, dtype, is_fused):
    q, k, v = operands(dtype=dtype)
    agree([q, k[:, :1].clone(), v[:, :1].clone()], enable_gqa=True)
    leaves = [tensor.to("cuda:1").requires_grad_() for tensor in (q, k[:, :1].clone(), v[:, :1].clone())]
    before = gpus.live_bytes(1)
    result = F.scaled_dot_product_attention(*leaves, enable_gqa=True)
    kept = rounded(result.nbytes) + rounded(BATCH * HEADS * ROWS * 4)
    assert (gpus.live_bytes(1) == before + kept) is is_fused


def test_a_kernel_that_does_not_take_the_dtype_is_not_replaced_by_another():
    query = torch.randn(1, 2, 8, 16, device="cuda:0")
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        with pytest.raises(RuntimeError, match=r"^No available kernel\. Aborting execution\.$"):
            F.scaled_dot_product_attention(query, query, query)
        assert F.scaled_dot_product_attention(*[query.half()] * 3).is_cuda
    with sdpa_kernel(SDPBackend.MATH):
        assert F.scaled_dot_product_attention(query, query, query).is_cuda


def test_each_kernel_alone_computes_what_all_together_do():
    query = torch.randn(1, 2, 8, 16, device="cuda:0").half().requires_grad_()
    expected = F.scaled_dot_product_attention(query, query, query)
    for kernel in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        with sdpa_kernel(kernel):
            result = F.scaled_dot_product_attention(query, query, query)
        torch.testing.assert_close(result, expected)
        assert torch.autograd.grad(result.sum(), query)[0].is_cuda
