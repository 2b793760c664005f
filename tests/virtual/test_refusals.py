"""What CUDA refuses and the CPU runs is refused, in CUDA's words, on a GPU only."""

import re

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import nn

pytestmark = pytest.mark.usefixtures("gpus")


def on(device, *shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype).to(device)


def long(device, *shape):
    return on(device, *shape, dtype=torch.int64)


def grown(device, *shape):
    return on(device, *shape).requires_grad_()


UNSTEADY = {
    "cumsum": (lambda at: on(at, 3).cumsum(0), "cumsum_cuda_kernel"),
    "bincount": (lambda at: torch.bincount(long(at, 3), weights=on(at, 3)), "_bincount_cuda"),
    "median": (lambda at: on(at, 3, 2).median(0), "median CUDA with indices output"),
    "put_": (lambda at: on(at, 3).put_(long(at, 1), on(at, 1), accumulate=True), "put_"),
    "adaptive_avg_pool2d": (
        lambda at: F.adaptive_avg_pool2d(grown(at, 1, 1, 4, 4), 2).sum().backward(),
        "adaptive_avg_pool2d_backward_cuda",
    ),
    "a padding by reflection": (
        lambda at: F.pad(grown(at, 1, 1, 4), (1, 1), mode="reflect").sum().backward(),
        "reflection_pad1d_backward_out_cuda",
    ),
    "bicubic interpolation": (
        # from 2.15 on `interpolate` takes another way here
        lambda at: torch._C._nn.upsample_bicubic2d(grown(at, 1, 1, 2, 2), (4, 4), False).sum().backward(),
        "upsample_bicubic2d_backward_out_cuda",
    ),
    "an embedding bag's maxima": (
        lambda at: F.embedding_bag(long(at, 1, 2), grown(at, 3, 3), mode="max").sum().backward(),
        "embedding_bag_backward_cuda_max",
    ),
    "grid_sample": (
        lambda at: (
            torch.grid_sampler(grown(at, 1, 1, 2, 2), on(at, 1, 2, 2, 2), 0, 0, False).sum().backward()
        ),
        "grid_sampler_2d_backward_cuda",
    ),
}


@pytest.mark.parametrize("what", UNSTEADY)
def test_what_is_not_deterministic_on_cuda_is_refused_where_it_must_be(what):
    compute, kernel = UNSTEADY[what]
    message = f"^{kernel} does not have a deterministic implementation, but"
    compute("cuda:0")
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match=message):
            compute("cuda:0")
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match=message):
            compute("cuda:0")
    finally:
        torch.use_deterministic_algorithms(False)


def test_what_is_deterministic_on_cuda_runs():
    torch.use_deterministic_algorithms(True)
    try:
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.LazyLinear(3)).cuda()
        F.cross_entropy(model(on("cuda:0", 2, 1, 4, 4)), long("cuda:0", 2)).backward()
        assert long("cuda:0", 3).cumsum(0).is_cuda
        assert torch.bincount(long("cuda:0", 3)).is_cuda
        assert on("cuda:0", 3).scatter_reduce(0, long("cuda:0", 3), on("cuda:0", 3), "sum").is_cuda
    finally:
        torch.use_deterministic_algorithms(False)


HALF = torch.float16
ALIKE = {
    "layer_norm": (
        lambda at: nn.LayerNorm(2).to(at)(on(at, 2, 2, dtype=HALF)),
        "expected scalar type Half but found Float",
    ),
    "layer_norm without bias": (
        lambda at: nn.LayerNorm(2, bias=False).to(at)(on(at, 2, 2, dtype=torch.bfloat16)),
        "expected scalar type BFloat16 but found Float",
    ),
    "group_norm": (
        lambda at: nn.GroupNorm(1, 2).to(at)(on(at, 2, 2, dtype=torch.float64)),
        "expected scalar type Double but found Float",
    ),
    "conv": (
        lambda at: F.conv1d(on(at, 1, 1, 3, dtype=HALF), on(at, 1, 1, 2)),
        "Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) should be the same",
    ),
}


@pytest.mark.parametrize("what", ALIKE)
def test_operands_of_two_dtypes_that_cuda_has_no_kernel_for_are_refused(what):
    compute, message = ALIKE[what]
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        compute("cuda")


def test_operands_of_two_dtypes_are_taken_where_cuda_takes_them():
    assert nn.LayerNorm(2).half().cuda()(on("cuda", 2, 2, dtype=HALF)).dtype is HALF
    assert nn.LayerNorm(2, elementwise_affine=False)(on("cuda", 2, 2, dtype=HALF)).dtype is HALF
    assert nn.LayerNorm(2)(on("cpu", 2, 2, dtype=torch.bfloat16)).dtype is torch.bfloat16
    assert nn.BatchNorm1d(2).cuda()(on("cuda", 2, 2, dtype=HALF)).dtype is HALF
    with torch.autocast("cuda"):
        assert nn.GroupNorm(1, 2).cuda()(on("cuda", 2, 2, dtype=HALF)).dtype is torch.float32


OTHERS = {
    "a tensor written over that backward needs": (
        lambda: grown("cuda:1", 3).exp().add_(1).sum().backward(),
        "modified by an inplace operation: [torch.cuda.FloatTensor [3]], which is output 0 of Exp",
    ),
    "indices that are no integers": (
        lambda: F.embedding(on("cuda", 1), on("cuda", 3, 2)),
        "scalar types: Long, Int; but got torch.cuda.FloatTensor instead",
    ),
    "a histogram": (
        lambda: torch.histogram(on("cuda", 3), 2),
        "Could not run 'aten::histogram.bin_ct' with arguments from the 'CUDA' backend.",
    ),
    "a window on the CPU": (
        lambda: torch.stft(on("cuda", 64), 8, window=torch.hann_window(8), return_complex=True),
        "stft input and window must be on the same device but got self on cuda:0 and window on cpu",
    ),
    "a window on the CPU, backwards": (
        lambda: torch.istft(on("cuda", 5, 9, dtype=torch.complex64), 8, window=torch.hann_window(8)),
        "istft input and window must be on the same device but got self on cuda:0 and window on cpu",
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_further_errors_have_cudas_words(what):
    compute, message = OTHERS[what]
    with pytest.raises(RuntimeError, match=re.escape(message)):
        compute()


def test_errors_of_cpu_tensors_keep_the_cpus_words():
    with pytest.raises(RuntimeError, match=re.escape("[torch.FloatTensor [3]]")):
        grown("cpu", 3).exp().add_(1).sum().backward()
    assert torch.histogram(torch.ones(3), 2).hist.sum() == 3
