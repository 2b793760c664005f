"""`rms_norm` holds what CUDA's kernel holds, and computes what the CPU computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dpdemo.virtual import virtual_gpus

ROWS, WIDTH = 512, 256


@pytest.mark.parametrize("storage", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_only_the_input_and_a_number_a_row_are_kept(storage: str, dtype: torch.dtype) -> None:
    with virtual_gpus(1, storage=storage) as gpus:  # type: ignore[arg-type] # one of the two
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
def test_numbers_and_gradients_are_the_cpus(with_weight: bool) -> None:
    data, weight = torch.randn(4, 6, 8), torch.randn(8) if with_weight else None

    def run(device: str) -> list[torch.Tensor]:
        given = [None if x is None else x.detach().to(device).requires_grad_() for x in (data, weight)]
        output = nn.functional.rms_norm(given[0], [8], given[1])  # type: ignore[arg-type]
        torch.autograd.backward(output.square().sum())
        return [output.detach(), *(x.grad for x in given if x is not None and x.grad is not None)]

    expected = run("cpu")
    with virtual_gpus(1):
        for found, wanted in zip(run("cuda"), expected, strict=True):
            torch.testing.assert_close(found.cpu(), wanted)


def test_under_autocast_the_norm_is_in_float32() -> None:
    with virtual_gpus(1), torch.autocast("cuda"):
        assert nn.RMSNorm(8).cuda()(torch.ones(2, 8, device="cuda").half()).dtype is torch.float32


def test_a_weight_on_another_device_is_cudas_error() -> None:
    with virtual_gpus(2), pytest.raises(RuntimeError, match="two devices"):
        nn.RMSNorm(8).cuda(1)(torch.ones(2, 8, device="cuda"))
