"""Operands on two devices: CUDA's errors for those who may not mix, and none for those who may."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import nn

pytestmark = pytest.mark.usefixtures("gpus")
BEGINNING = "Expected all tensors to be on the same device, but "


def zero(*shape: int) -> torch.Tensor:
    return torch.ones(shape, device="cuda:0")


def one(*shape: int) -> torch.Tensor:
    return torch.ones(shape, device="cuda:1")


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda: zero(3) + one(3), "found at least two devices, cuda:0 and cuda:1!"),
        (lambda: zero(3) * torch.ones(3), "found at least two devices, cuda:0 and cpu!"),
        (lambda: torch.ones(3) - zero(3), "found at least two devices, cpu and cuda:0!"),
        (lambda: zero(3).add_(torch.ones(3)), "found at least two devices, cuda:0 and cpu!"),
        (
            lambda: zero(2, 2) @ one(2, 2),
            (
                "got mat2 is on cuda:1, different from other tensors on cuda:0 "
                "(when checking argument in method wrapper_CUDA_mm)"
            ),
        ),
        (
            lambda: F.linear(one(2, 3), zero(4, 3), zero(4)),
            (
                "got mat1 is on cuda:1, different from other tensors on cuda:0 "
                "(when checking argument in method wrapper_CUDA_addmm)"
            ),
        ),
        (
            lambda: F.embedding(torch.tensor([0, 1]), zero(3, 3)),
            (
                "got index is on cpu, different from other tensors on cuda:0 "
                "(when checking argument in method wrapper_CUDA__index_select)"
            ),
        ),
        (
            lambda: torch.cat([zero(2), torch.ones(2)]),
            (
                "got tensors is on cpu, different from other tensors on cuda:0 "
                "(when checking argument in method wrapper_CUDA_cat)"
            ),
        ),
        (
            lambda: F.cross_entropy(zero(2, 3), torch.tensor([0, 1])),
            (
                "got target is on cpu, different from other tensors on cuda:0 "
                "(when checking argument in method wrapper_CUDA_nll_loss_forward)"
            ),
        ),
    ],
)
def test_operands_on_two_devices_fail_in_cudas_words(compute: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=f"^{re.escape(BEGINNING + message)}$"):
        compute()


def test_temporaries_on_the_cpu_are_told_from_tensors_that_pytorch_makes_inside() -> None:
    with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
        zero(3) + torch.ones(3)
    with pytest.raises(RuntimeError, match="is on cpu"):
        torch.stack([zero(3), torch.arange(3.0)])
    # `combinations` makes a mask, `quantile` ranks, and a list of numbers an index, all on the CPU as C++
    # sees it.
    assert torch.combinations(zero(4)).is_cuda
    assert torch.quantile(zero(4, 4), 0.3, dim=0).is_cuda
    assert zero(4, 4)[[0, 1]].is_cuda


def test_a_convolution_of_a_cpu_tensor_fails_in_its_own_words() -> None:
    message = "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same"
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        nn.Conv2d(1, 1, 1).cuda()(torch.ones(1, 1, 2, 2))


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_network_with_parts_elsewhere_fails_in_its_own_words(make: Any) -> None:
    network, hidden = make(2, 2).cuda(), torch.zeros(1, 1, 2)
    message = (
        "Input and hidden tensors are not at the same device, "
        "found input tensor at cuda:0 and hidden tensor at cpu"
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        network(zero(1, 1, 2), (hidden, hidden) if make is nn.LSTM else hidden)
    with pytest.raises(
        RuntimeError, match=r"^Input and (hidden|parameter) tensors are not at .* and \w+ tensor at cuda:0$"
    ):
        network(torch.zeros(1, 1, 2))


def test_a_cpu_tensor_without_dimensions_may_be_read_beside_gpu_tensors_but_not_written() -> None:
    assert (zero(3) + torch.tensor(1.0)).get_device() == 0
    assert torch.where(zero(3) > 0, zero(3), torch.tensor(0.0)).get_device() == 0
    with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
        torch.tensor(1.0).add_(torch.tensor(1.0, device="cuda:0"))
    with pytest.raises(RuntimeError, match="cuda:0 and cuda:1"):
        zero() + one(3)


def test_indices_may_be_on_the_cpu_and_not_on_another_gpu() -> None:
    assert zero(3)[torch.tensor([0, 1])].get_device() == 0
    assert zero(3)[zero(3) > 0].get_device() == 0
    with pytest.raises(
        RuntimeError, match=r"indices should be either on cpu or on the same device .*\(cuda:0\)"
    ):
        zero(3)[torch.tensor([0], device="cuda:1")]
    with pytest.raises(RuntimeError, match=r"indices should be either on cpu .*\(cpu\)"):
        torch.ones(3)[torch.tensor([0], device="cuda:1")]


def test_lengths_of_packed_sequences_must_be_on_the_cpu() -> None:
    batch = zero(2, 3, 4)
    packed = nn.utils.rnn.pack_padded_sequence(batch, torch.tensor([3, 2]), batch_first=True)
    assert packed.data.is_cuda
    assert not packed.batch_sizes.is_cuda
    message = "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor"
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        nn.utils.rnn.pack_padded_sequence(batch, torch.tensor([3, 2]).cuda(), batch_first=True)
    output, _ = nn.GRU(4, 5, batch_first=True).cuda()(packed)
    padded, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
    padded.sum().backward()
    assert padded.is_cuda


def test_a_generator_of_another_kind_of_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"^Expected a 'cuda' device type for generator but found 'cpu'$"):
        torch.randn(2, device="cuda:1", generator=torch.Generator())
    with pytest.raises(RuntimeError, match=r"^Expected a 'cpu' device type for generator but found 'cuda'$"):
        torch.randn(2, generator=torch.Generator("cuda:1"))


def test_a_custom_operator_runs_on_a_gpu_or_says_that_it_cannot() -> None:
    @torch.library.custom_op("dpdemo_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * torch.full((1,), 2.0, device=x.device)

    @torch.library.custom_op("dpdemo_tests::cpu_only", mutates_args=(), device_types="cpu")
    def cpu_only(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    assert twice(one(2)).tolist() == [2, 2]
    assert twice(one(2)).get_device() == 1
    assert twice(torch.ones(2)).device.type == "cpu"
    with pytest.raises(NotImplementedError, match=r"dpdemo_tests.cpu_only.*code for 'cuda' was expected"):
        cpu_only(one(2))
