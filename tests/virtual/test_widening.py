"""Operators that CUDA has for a narrow dtype and the CPU has not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom

from dpdemo.virtual import UnsupportedOpError

pytestmark = pytest.mark.usefixtures("gpus")


def test_they_run_in_a_wider_dtype_and_give_the_narrow_one() -> None:
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


def test_what_the_cpu_cannot_do_in_any_dtype_fails_with_the_operators_name() -> None:
    with pytest.raises(UnsupportedOpError, match=r"aten\.histc\.default.*not implemented for 'Bool'"):
        torch.histc(torch.ones(3, dtype=torch.bool, device="cuda"))


def test_other_errors_are_pytorchs_own() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied") as caught:
        torch.ones(2, 3, device="cuda") @ torch.ones(2, 3, device="cuda")
    assert type(caught.value) is RuntimeError


def test_the_refusal_names_cudas_kernel_where_it_is_called_as_the_cpus() -> None:
    with pytest.raises(NotImplementedError, match="\"linalg_svd_cuda\" not implemented for 'Half'"):
        torch.linalg.svd(torch.eye(2, dtype=torch.float16, device="cuda"))
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        torch.softmax(torch.ones(2, dtype=torch.int64, device="cuda"), 0)
