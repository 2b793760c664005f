"""What CUDA refuses and the CPU runs is refused, in CUDA's words, on a GPU only."""

import re

import pytest
import torch
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


def test_an_operator_that_cuda_does_not_have_is_refused():
    with pytest.raises(
        NotImplementedError, match=r"Could not run 'aten::histogram.bin_ct' with arguments from"
    ):
        torch.histogram(on("cuda", 3), 2)
    assert torch.histogram(torch.ones(3), 2).hist.sum() == 3
