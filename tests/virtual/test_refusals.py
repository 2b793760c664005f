"""What CUDA refuses and the CPU runs is refused, in CUDA's words, on a GPU only."""

import re

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import nn

pytestmark = pytest.mark.usefixtures("gpus")


def on(device, *shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype).to(device)


def grown(device, *shape):
    return on(device, *shape).requires_grad_()


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
