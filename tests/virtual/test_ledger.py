"""Bytes are counted by storage, in the caching allocator's blocks, and come back when the storage dies."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from dpdemo.virtual import VirtualGpus, separate_ledger
from dpdemo.virtual.ledger import BLOCK_BYTES, rounded


def test_sizes_are_rounded_up_to_blocks() -> None:
    assert BLOCK_BYTES == 512
    assert [rounded(size) for size in (0, 1, 512, 513, 1024)] == [0, 512, 512, 1024, 1024]


def test_views_and_aliases_of_a_storage_count_once(gpus: VirtualGpus) -> None:
    tensor = torch.zeros(256, device="cuda:2")
    others = [tensor[1:], tensor.detach(), tensor.view(16, 16), nn.Parameter(tensor), tensor.data]
    assert gpus.live_bytes(2) == 1024
    del tensor
    assert gpus.live_bytes(2) == 1024
    others.clear()
    assert gpus.live_bytes(2) == 0
    assert gpus.peak_bytes(2) == 1024


def test_a_storage_that_grows_in_place_is_followed(gpus: VirtualGpus) -> None:
    tensor = torch.empty(0, device="cuda:1")
    assert gpus.live_bytes(1) == 0
    torch.add(torch.zeros(256, device="cuda:1"), 1, out=tensor)
    assert gpus.live_bytes(1) == 1024
    tensor.resize_(512)
    assert gpus.live_bytes(1) == 2048
    del tensor
    assert gpus.live_bytes(1) == 0


def test_a_training_step_leaves_parameters_gradients_and_optimizer_state(gpus: VirtualGpus) -> None:
    model = nn.Linear(128, 128).cuda()
    weights = 128 * 128 * 4 + 512
    assert gpus.live_bytes(0) == weights
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = model(torch.ones(4, 128, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    del loss
    gc.collect()
    assert gpus.live_bytes(0) == 3 * weights
    assert [gpus.live_bytes(index) for index in (1, 2, 3)] == [0, 0, 0]


def test_replicas_are_held_while_the_graph_lives_and_freed_after_backward(gpus: VirtualGpus) -> None:
    model = nn.DataParallel(nn.Linear(128, 128).cuda())
    weights = 128 * 128 * 4 + 512
    batch = torch.ones(4, 128, device="cuda").requires_grad_()
    gpus.reset_peaks()
    output = model(batch)
    assert gpus.live_bytes(3) >= weights  # kept for the gradient of the input
    assert gpus.bytes_moved_between[0, 3] == weights + 128 * 4
    output.sum().backward()
    del output
    gc.collect()
    assert [gpus.live_bytes(index) for index in (1, 2, 3)] == [0, 0, 0]
    assert gpus.peak_bytes(3) > weights


def test_sparse_tensors_count_their_parts(gpus: VirtualGpus) -> None:
    layer = nn.Embedding(100, 64, sparse=True).cuda()
    before = gpus.live_bytes(0)
    layer(torch.tensor([1, 2, 2], device="cuda")).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.is_sparse
    assert layer.weight.grad.is_cuda
    assert gpus.live_bytes(0) > before


def test_a_separate_ledger_keeps_all_off_the_other_one(gpus: VirtualGpus) -> None:
    before = torch.ones(128, device="cuda:1")
    with separate_ledger() as aside:
        inside = torch.ones(1024).cuda(1)
        del before  # what is freed is taken off where it was put on
        assert (aside.live_bytes(1), gpus.live_bytes(1)) == (4096, 0)
        assert torch.cuda.max_memory_allocated(1) == aside.peak_bytes(1) == 4096
    assert (gpus.peak_bytes(1), torch.cuda.max_memory_allocated(1)) == (512, 512)
    assert (gpus.bytes_moved.host_to_device, aside.bytes_moved.host_to_device) == (0, 4096)
    del inside
    assert (aside.live_bytes(1), gpus.live_bytes(1)) == (0, 0)


def test_the_ledger_is_back_after_an_exception(gpus: VirtualGpus) -> None:
    with pytest.raises(KeyboardInterrupt), separate_ledger():
        raise KeyboardInterrupt
    kept = torch.ones(128, device="cuda:1")
    assert gpus.live_bytes(1) == kept.nbytes
